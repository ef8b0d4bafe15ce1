#!/usr/bin/env python3
"""README.md shows tests/readme/example.c as it is, and what it prints as it prints it; and keeps its length.

    check.py README.md example.c PROGRAM
"""
import subprocess
import sys


def main():
    readme_path, source_path, program = sys.argv[1:]
    readme = open(readme_path, encoding="utf-8").read()
    source = open(source_path, encoding="utf-8").read()
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, timeout=60)
    wrong = []
    if done.returncode != 0:
        wrong.append("the example failed: %s" % done.stdout)
    if "```c\n%s```" % source not in readme:
        wrong.append("the C block of the README is not tests/readme/example.c")
    if "```\n%s```" % done.stdout not in readme:
        wrong.append("the README does not show what the example prints:\n%s" % done.stdout)
    lines = readme.count("\n")
    if lines > 200:
        wrong.append("the README has %d lines, at most 200 are meant to be" % lines)
    print("\n".join(wrong) or "the README tells the truth about its example")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
