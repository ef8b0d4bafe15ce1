"""matrix.txt is a whole run of the cells that there are, without a failure, and docs/promises.md has its count.

usage: check_written.py REPOSITORY"""
import os
import re
import sys

from cells import all_cells

LEAST = 400
MOST_MS_OF_KILL = 100


def main():
    with open(os.path.join(sys.argv[1], "tests", "faults", "matrix.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    with open(os.path.join(sys.argv[1], "docs", "promises.md"), encoding="utf-8") as file:
        readme = file.read()
    written = [line.rpartition(" | ")[0] for line in lines if line.count(" | ") == 3]
    cells = [str(cell) for cell in all_cells(False)]
    complaints = []
    if written != cells:
        complaints.append(f"matrix.txt has {len(written)} cells, cells.py {len(cells)}: write it anew by run.sh")
    if len(set(cells)) < LEAST:
        complaints.append(f"{len(set(cells))} cells, fewer than {LEAST}")
    if any(line.endswith("| FAILED") for line in lines):
        complaints.append("matrix.txt has cells that failed")
    told = re.search(r"^kill to named error, .* p99 ([0-9.]+) ms", "\n".join(lines), re.MULTILINE)
    if told is None or float(told[1]) >= MOST_MS_OF_KILL:
        complaints.append(f"from a kill to the named error it takes {told and told[1]} ms (p99), not below "
                          f"{MOST_MS_OF_KILL}")
    if f"{len(written):,} cells" not in readme:
        complaints.append(f"docs/promises.md does not say that there are {len(written):,} cells")
    print("\n".join(complaints) or f"{len(written)} cells")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
