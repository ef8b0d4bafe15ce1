"""matrix.txt is the summary of a whole run of the cells that there are, without a failure; docs/promises.md has its
count; and each kind of message has a cell.

usage: check_written.py REPOSITORY"""
import os
import re
import sys

from cells import FAULTS, all_cells, digest

LEAST = 400
MOST_LINES = 30
MOST_MS_OF_KILL = 50
ENGINES = ("libzmq", "zmtp")


def complaints_of_summary(text, cells):
    complaints = []
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        complaints.append(f"matrix.txt has {len(lines)} lines, more than {MOST_LINES}")
    if f"SHA-256 of their names: {digest(cells)}" not in lines:
        complaints.append(f"matrix.txt is not of the {len(cells)} cells of cells.py: write it anew by run.sh")
    rows = {line[:24].strip(): [int(count) for count in line[24:].split()]
            for line in lines if re.fullmatch(r".{24}( +[0-9]+){3}", line)}
    for fault in FAULTS:
        counts = rows.get(fault, [])
        run = sum(cell.fault == fault for cell in cells)
        if sum(counts) != run or counts[-1:] != [0]:
            complaints.append(f"matrix.txt has {counts} for the fault {fault}, not {run} without a failure")
    for engine in ENGINES:
        told = re.search(rf"^kill to named error by {engine}, .* p99 ([0-9.]+) ms", text, re.MULTILINE)
        if told is None or float(told[1]) > MOST_MS_OF_KILL:
            complaints.append(f"from a kill to the named error it takes {told and told[1]} ms (p99) by {engine}, more "
                              f"than {MOST_MS_OF_KILL}")
    return complaints


def complaints_of_kinds(schema, cells):
    """Of messages, as the union of them names them."""
    kinds = re.search(r"^union Body \{(.*?)\}", schema, re.MULTILINE | re.DOTALL)[1].replace(",", " ").split()
    return [f"no cell strikes at a message {kind}" for kind in kinds if kind not in {cell.kind for cell in cells}]


def read(*path):
    with open(os.path.join(sys.argv[1], *path), encoding="utf-8") as file:
        return file.read()


def main():
    cells = all_cells(False)
    complaints = complaints_of_summary(read("tests", "faults", "matrix.txt"), cells)
    complaints += complaints_of_kinds(read("schemas", "message.fbs"), cells)
    if len(set(map(str, cells))) < LEAST:
        complaints.append(f"{len(cells)} cells, fewer than {LEAST}")
    if f"{len(cells):,} cells" not in read("docs", "promises.md"):
        complaints.append(f"docs/promises.md does not say that there are {len(cells):,} cells")
    print("\n".join(complaints) or f"{len(cells)} cells")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
