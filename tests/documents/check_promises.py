"""Each row of docs/promises.md has a version of the changelog and tests that the build knows.
usage: check_promises.py REPOSITORY CTEST BUILD_FOLDER"""
import os
import re
import subprocess
import sys


def rows(text):
    """(line, promise, since, tests) of the table of promises; rows that head a group are left out."""
    for number, line in enumerate(text.split("\n"), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] != "promise" and (cells[1] or cells[2]):
            yield number, cells[0], cells[1], [name for name in cells[2].split(", ") if name]
        if line.startswith("## "):
            return


def check(text, tests, versions):
    found = list(rows(text))
    if not found:
        yield "there are no promises"
    for number, promise, since, named in found:
        if since not in versions:
            yield f"line {number}: no version {since!r}: {promise[:60]}"
        if not named:
            yield f"line {number}: no test holds it: {promise[:60]}"
        for name in named:
            if name not in tests:
                yield f"line {number}: there is no test {name}"


def self_test():
    head = "| promise | since | test |\n|---|---|---|\n| **Group** | | |\n"
    for row, expected in (("| a | 0.1 | t |", 0), ("| a | 0.9 | t |", 1), ("| a | 0.1 | |", 1), ("| a | 0.1 | t, u |", 1), ("", 1)):
        got = list(check(head + row + "\n## Next\n| b | c | d |\n", {"t"}, {"0.1"}))
        if len(got) != expected:
            yield f"self test of {row!r}: {expected} complaints were expected, got {got}"


def main():
    repository, ctest, build = sys.argv[1:]
    listed = subprocess.run([ctest, "--test-dir", build, "-N"], stdout=subprocess.PIPE, text=True, check=True, timeout=240).stdout
    tests = set(re.findall(r"Test +#\d+: (\S+)", listed))
    with open(os.path.join(repository, "CHANGELOG.md"), encoding="utf-8") as file:
        versions = {version[: version.rindex(".")] for version in re.findall(r"^## (\d+\.\d+\.\d+)", file.read(), re.M)}
    with open(os.path.join(repository, "docs", "promises.md"), encoding="utf-8") as file:
        complaints = [*self_test(), *check(file.read(), tests, versions)]
    print("\n".join(complaints) or f"{len(tests)} tests, every promise has one")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
