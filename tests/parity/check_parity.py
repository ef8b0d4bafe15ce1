"""Checks docs/parity.md: every row is there, and every function and test that it names exists. usage: check_parity.py ROOT

A cell of tests is `file`: Name, Name; `file` ... with files under tests/, or of a sample under samples/."""
import pathlib
import re
import sys

ROWS = [f"F{n}" for n in range(1, 26)] + [f"R{n}" for n in range(1, 11)] + [f"G{n}" for n in range(1, 14)] + [
    f"P{n}" for n in range(1, 37)]
# Rows whose answer is a refusal without a function, or not there yet.
WITHOUT_TEST = {"F24", "P27"}


def names_in(path):
    """What can be named: the second argument of a TEST, or a function of a C program."""
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^TEST(?:_F|_P)?\(\w+,\s*(\w+)\)", text, re.M)) | set(
        re.findall(r"^static void (\w+)\(", text, re.M))


def test_complaints(root, row, cell):
    if not cell:
        if row not in WITHOUT_TEST:
            yield f"{row}: no test"
        return
    for part in cell.split(";"):
        match = re.fullmatch(r"`([^`]+)`(?:: (.*))?", part.strip())
        if not match:
            yield f"{row}: not of the form `file`: Name, Name: {part.strip()}"
            continue
        path = root / "tests" / match.group(1)
        if not path.is_file():
            yield f"{row}: no file {path}"
            continue
        known = names_in(path)
        for name in (match.group(2) or "").split(","):
            if name.strip() and name.strip() not in known:
                yield f"{row}: no {name.strip()} in {match.group(1)}"


def complaints(root):
    header = (root / "include" / "distag.h").read_text(encoding="utf-8")
    seen = []
    for line in (root / "docs" / "parity.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.fullmatch(r"[FRGP]\d+", cells[0]):
            continue
        row = cells[0]
        seen.append(row)
        if len(cells) != 4:
            yield f"{row}: {len(cells)} cells"
            continue
        for name in re.findall(r"`(distag_\w+)", cells[2]):
            if not re.search(rf"\b{name}\b", header):
                yield f"{row}: no {name} in distag.h"
        yield from test_complaints(root, row, cells[3])
    if seen != ROWS:
        yield f"rows: missing {sorted(set(ROWS) - set(seen))}, or not in order"


def main():
    found = list(complaints(pathlib.Path(sys.argv[1])))
    for complaint in found:
        print(f"docs/parity.md: {complaint}")
    print(f"{len(ROWS)} rows, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
