#!/usr/bin/python3
"""Has the compiler of a build folder look at every source with the build's options, and make no code.

usage: check_sources.py BUILD [BUILT]

Leaves out what the build folder BUILT has compiled by the same compiler with the same definitions and the same
warnings, as errors. What is generated has to be there. Prints what the compiler says of those that it does not take;
exit code 1 then.
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

# Makes the C++ library assert what it is given, and tests measure less; nothing warn.
FOR_LIBRARY = {"-D_GLIBCXX_ASSERTIONS", "-D__SANITIZE_ADDRESS__"}


def check(entry):
    """(file, what the compiler says), empty for one that it takes."""
    command = shlex.split(entry["command"])
    output = command.index("-o")
    done = subprocess.run(command[:output] + command[output + 2:] + ["-fsyntax-only"], cwd=entry["directory"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return entry["file"], done.stdout or "it fails" if done.returncode != 0 else ""


def entries_of(folder):
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        return json.load(file)


def files_of(entry):
    """The sources: one, or those that a batch includes."""
    if "/batches/" not in entry["file"]:
        return [entry["file"]]
    with open(entry["file"], encoding="utf-8") as file:
        return [os.path.abspath(name) for name in re.findall(r'#include "(.*)"', file.read())]


def views_of(entry):
    """All that decides what is warned of: the file, the compiler, the definitions and the warnings."""
    words = shlex.split(entry["command"])
    told = sorted({word for word in words if word.startswith(("-D", "-W", "-std"))} - FOR_LIBRARY)
    return {(name, next(word for word in words if "clang" in word), tuple(told)) for name in files_of(entry)}


def compiled(folder):
    """The views of what has its object there, by a build that takes no warning."""
    views = set()
    for entry in entries_of(folder):
        words = shlex.split(entry["command"])
        made = os.path.join(entry["directory"], words[words.index("-o") + 1])
        newest = max(os.path.getmtime(name) for name in files_of(entry))
        if "-Werror" in words and os.path.exists(made) and os.path.getmtime(made) > newest:
            views |= views_of(entry)
    return views


def main():
    entries = entries_of(sys.argv[1])
    done = compiled(sys.argv[2]) if len(sys.argv) > 2 else set()
    entries, all_count = [entry for entry in entries if not views_of(entry) <= done], len(entries)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [result for result in pool.map(check, entries) if result[1]]
    for name, text in failed:
        print(f"{name}:\n{text}")
    print(f"{len(entries)} of {all_count} sources, {len(failed)} refused")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
