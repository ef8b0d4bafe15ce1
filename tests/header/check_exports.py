"""The library exports exactly the functions of the header. usage: check_exports.py nm libdistag.so distag.h"""
import subprocess
import sys

import header_text


def main():
    tool, library, header = sys.argv[1:]
    output = subprocess.run([tool, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in output.splitlines() if line.strip()}
    with open(header, encoding="utf-8") as file:
        declared = {function.name for function in header_text.functions(file.read())}
    for name in sorted(exported - declared):
        print(f"exported, but not declared in the header: {name}")
    for name in sorted(declared - exported):
        print(f"declared in the header, but not exported: {name}")
    print(f"{len(exported)} exported, {len(declared)} declared")
    return 0 if exported == declared else 1


if __name__ == "__main__":
    sys.exit(main())
