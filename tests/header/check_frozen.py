"""Checks that distag.h keeps what released versions had, at its place.
usage: check_frozen.py distag.h compiler slots-X.Y.txt ...
The list of a version is written when it is released: check_frozen.py --print distag.h > slots-X.Y.txt"""
import os
import subprocess
import sys

import abi


def check(text, frozen):
    """What a released list has and the header does not; `frozen` are its lines."""
    found = abi.lines(text)
    now = {abi.nameless(line) for line in found} | set(abi.spelled_out(found))
    for line in frozen:
        if line and abi.nameless(line) not in now:
            yield f"gone, moved or changed: {line}"


def compile_offsets(compiler, header, frozen):
    """What the compiler says of the offsets in a list: empty when it agrees."""
    source = ["#include <distag.h>"]
    for line in frozen:
        kind, *rest = line.split(" ")
        if kind in ("slot", "member"):
            struct, offset, name = (["distag_api"] + rest if kind == "slot" else rest)[:3]
            source.append(f'_Static_assert(offsetof({struct}, {name}) == {offset}, "{struct}.{name}");')
    command = [compiler, "-std=c11", "-fsyntax-only", "-x", "c", "-I", os.path.dirname(header), "-"]
    done = subprocess.run(command, input="\n".join(source), capture_output=True, text=True, check=False)
    return done.stderr if done.returncode != 0 else ""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    if sys.argv[1] == "--print":
        print("\n".join(abi.lines(read(sys.argv[2]))))
        return 0
    text = read(sys.argv[1])
    failures = 0
    for path in sys.argv[3:]:
        frozen = read(path).splitlines()
        complaints = list(check(text, frozen))
        told = compile_offsets(sys.argv[2], sys.argv[1], frozen)
        if told:
            complaints.append(told)
        for complaint in complaints:
            print(f"{path}: {complaint}")
        print(f"{path}: {len(frozen)} lines, {len(complaints)} complaints")
        failures += len(complaints) + (len(frozen) < 100)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
