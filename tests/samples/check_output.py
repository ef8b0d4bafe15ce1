"""Runs a program and checks what it prints. usage: check_output.py EXPECTED PROGRAM [ARGUMENTS...]

EXPECTED holds a regular expression per line; each must match a whole line of the output, in this order, other lines may
stand between. Lines that begin with # are notes. A rank before a line of the output, as `distag run` puts it there, is
not part of it."""
import re
import subprocess
import sys


def missing_lines(expected, output):
    lines = iter(output.splitlines())
    for number, pattern in enumerate(expected.splitlines(), 1):
        if not pattern.strip() or pattern.startswith("#"):
            continue
        if not any(re.fullmatch(r"(\[\d+\] )?(" + pattern + ")", line.strip()) for line in lines):
            yield f"line {number}: nothing (more) matches: {pattern}"
            return


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        expected = file.read()
    result = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(result.stdout)
    failures = list(missing_lines(expected, result.stdout))
    if result.returncode != 0:
        failures.append(f"it ended with {result.returncode}")
    if not any(line.strip() and not line.startswith("#") for line in expected.splitlines()):
        failures.append("nothing is expected: a check that cannot fail")
    for failure in failures:
        print(f"{sys.argv[1]}: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
