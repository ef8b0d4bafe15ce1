#!/usr/bin/python3
"""Has the compiler of a build folder look at every source with the build's options, and make no code.

usage: check_sources.py BUILD

What is generated has to be there. Prints what the compiler says of those that it does not take; exit code 1 then.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def check(entry):
    """(file, what the compiler says), empty for one that it takes."""
    command = shlex.split(entry["command"])
    output = command.index("-o")
    done = subprocess.run(command[:output] + command[output + 2:] + ["-fsyntax-only"], cwd=entry["directory"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return entry["file"], done.stdout or "it fails" if done.returncode != 0 else ""


def main():
    with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [result for result in pool.map(check, entries) if result[1]]
    for name, text in failed:
        print(f"{name}:\n{text}")
    print(f"{len(entries)} sources, {len(failed)} refused")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
