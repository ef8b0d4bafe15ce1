"""A conformance program runs every case of bindings/conformance/cases.json, in its order, and each is ok. A language that
cannot do a case, as "refused_by" of the case says, asserts that it is refused, and prints "ok N - name # refused".
With --only the program has to run the cases whose names have one of the WORDS, which it is given after its arguments.
usage: check_conformance.py CASES [--language NAME | --only "WORDS..."] PROGRAM [ARGUMENTS...]"""
import json
import re
import subprocess
import sys

REFUSED = " # refused"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    names = [case["name"] for case in cases]
    option, value, program = (*sys.argv[2:4], sys.argv[4:]) if sys.argv[2].startswith("--") else ("", "", sys.argv[2:])
    language = value if option == "--language" else None
    if option == "--only":
        program += value.split()
        names = [name for name in names if any(word in name for word in value.split())]
        unknown = [word for word in value.split() if not any(word in name for name in names)]
        if unknown or not names:
            sys.exit(f"no case has {unknown or 'one of no words'}")
    may_refuse = {case["name"] for case in cases if language in case.get("refused_by", [])}
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    complaints = [] if done.returncode == 0 else [f"the program left with {done.returncode}"]
    lines = re.findall(r"^(ok|not ok) (\d+) - (.*)$", done.stdout, re.M)
    refused = [name[:-len(REFUSED)] for _, _, name in lines if name.endswith(REFUSED)]
    complaints += [f"refused, and may not be: {name}" for name in refused if name not in may_refuse]
    complaints += [f"done, and said to be refused: {name}" for name in may_refuse if name not in refused]
    lines = [(verdict, number, name[:-len(REFUSED)] if name.endswith(REFUSED) else name) for verdict, number, name in lines]
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
