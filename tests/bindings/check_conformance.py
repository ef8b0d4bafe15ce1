"""A conformance program runs every case of bindings/conformance/cases.json, in its order, and each is ok.
usage: check_conformance.py CASES PROGRAM [ARGUMENTS...]"""
import json
import re
import subprocess
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        names = [case["name"] for case in json.load(file)["cases"]]
    done = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, text=True, timeout=100)
    print(done.stdout, end="")
    complaints = [] if done.returncode == 0 else [f"the program left with {done.returncode}"]
    lines = re.findall(r"^(ok|not ok) (\d+) - (.*)$", done.stdout, re.M)
    found = [name for _, _, name in lines]
    complaints += [f"not ok: {name}" for verdict, _, name in lines if verdict != "ok"]
    complaints += [f"left out: {name}" for name in names if name not in found]
    complaints += [f"no case of the file: {name}" for name in found if name not in names]
    numbers = [int(number) for _, number, _ in lines]
    if not complaints and (found != names or numbers != list(range(1, len(names) + 1))):
        complaints.append("the cases do not have the order or the numbers of the file")
    if f"1..{len(names)}" not in done.stdout.split("\n"):
        complaints.append(f"there is no line 1..{len(names)}")
    print("\n".join(complaints) or f"{len(names)} cases, all ok")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
