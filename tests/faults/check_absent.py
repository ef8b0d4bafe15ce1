"""No library has a byte of the fault points; the program of the matrix has them.

usage: check_absent.py NM PROGRAM LIBRARY..."""
import re
import subprocess
import sys

SYMBOL = re.compile(r"with_fault_points|\bfaults::|Faulty")
TEXT = b"Lock.open", b"Group.rename"


def found(nm, path):
    symbols = subprocess.run([nm, "--demangle", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    with open(path, "rb") as file:
        content = file.read()
    return sorted(set(SYMBOL.findall(symbols))) + [text.decode() for text in TEXT if text in content]


def main():
    nm, program, *libraries = sys.argv[1:]
    failures = [f"{path} has {found(nm, path)}" for path in libraries if found(nm, path)]
    if not found(nm, program):
        failures.append(f"{program} has no fault point either: nothing was looked for")
    print("\n".join(failures) or f"{len(libraries)} libraries without fault points")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
