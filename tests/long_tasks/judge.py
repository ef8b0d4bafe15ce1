#!/usr/bin/python3
"""Judges the tasks of loops that took more than 5 ms of the processor while the suite ran.

usage: judge.py FILE [COMMAND...]   FILE as note_long_tasks() writes it: a line each of microseconds, page faults, process,
                                    program and task

A task that is long takes long each time. On a machine that others use, any task may at times find its caches gone or its
processor lent to somebody else, and that counts as its own time: so a task fails from the tenth time on in one program.
The first time in a process does not count: to start, a worker finds and binds the functions of libzmq, and makes its first
context and thread, which takes 5 to 10 ms where nothing of it is at hand, and happens before anybody is served.
One that copies payload, or is the first to call a library, waits for the system to bring in pages: what a page takes is
measured here, from 0.3 us to 20 us in a virtual machine, and for each page fault so much more is allowed. A program that
the suite runs under an instruction counter, fifty times slower, is left out. Prints all that were long, most often first.

With a COMMAND, ctest for a build folder, the tests that run a program with a task that fails run again, with nothing
beside them, up to twice: a task that was long for the sake of its neighbours is not long then. Where no test names the
program, those run that are no program of their own: scripts and hosts. Exit code 1 if a task fails in each of these runs.
"""
import collections
import json
import mmap
import os
import re
import subprocess
import sys
import time

TIMES = 10
REPEATS = 2
LIMIT = 5_000  # microseconds
PAGE = 4096
HUGE_PAGE = 2 << 20
COUNTED = {"hot_paths"}  # runs under callgrind alone


def name_of(task):
    """`distag::Worker::shutdown(distag::Nanos)::<lambda()>` of the long name that a compiler gives a task."""
    found = re.search(r"\[with (?:D|Call|F) = (.*?)(?:; [A-Z]\w* = |\]$)", task)
    return found.group(1) if found else task


def time_to_touch(size, advice, step):
    """Microseconds until memory of `size` bytes, a byte in each `step`, is there for the first time: the slowest of nine."""
    slowest = 0
    for _ in range(9):
        with mmap.mmap(-1, size + HUGE_PAGE) as memory:
            memory.madvise(advice)
            begin = time.thread_time_ns()
            for at in range(0, size, step):
                memory[at] = 1
            slowest = max(slowest, time.thread_time_ns() - begin)
    return slowest / 1000


def judge(lines, limit, of_fault):
    """(task, program, times, longest in microseconds) of each that was long, most often first."""
    seen = collections.defaultdict(list)
    began = set()
    for line in lines:
        taken, faults, process, program, task = line.rstrip("\n").split(" ", 4)
        if int(taken) <= limit + int(faults) * of_fault or program in COUNTED:
            continue
        first = (process, program, task)
        if first in began:
            seen[name_of(task), program].append(int(taken))
        began.add(first)
    rows = [(task, program, len(taken), max(taken)) for (task, program), taken in seen.items()]
    return sorted(rows, key=lambda row: (-row[2], row[:2]))


def judge_file(path):
    """The programs in which a task fails. Prints each task that was long."""
    rows = []
    limit = LIMIT + round(time_to_touch(HUGE_PAGE, mmap.MADV_HUGEPAGE, HUGE_PAGE))
    pages = 256
    of_fault = time_to_touch(pages * PAGE, mmap.MADV_NOHUGEPAGE, PAGE) / pages
    if os.path.exists(path):  # nothing is written where no task was long
        with open(path, encoding="utf-8") as file:
            rows = judge(file, limit, of_fault)
    for task, program, times, longest in rows:
        verdict = "FAILED" if times >= TIMES else "once" if times == 1 else f"{times} times"
        print(f"long task: {verdict}: {task}, {times} x in {program}, at most {longest} us")
    failed = [program for _, program, times, _ in rows if times >= TIMES]
    allowed = f"{limit} us and {of_fault:.1f} us for each page fault"
    print(f"tasks of loops: {len(failed)} took more than {allowed} at least {TIMES} times", flush=True)
    return sorted(set(failed))


def tests_of(programs, tests):
    """Names of the tests to run again. `tests`: a command of each name."""
    chosen = set()
    for program in programs:
        named = {name for name, command in tests.items() if program in map(os.path.basename, command)}
        if not named:
            named = {name for name, command in tests.items() if os.path.basename(command[0]) not in name}
        chosen |= named
    return sorted(chosen)


def all_tests(command):
    listed = subprocess.run([*command, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    return {test["name"]: test["command"] for test in json.loads(listed)["tests"] if test.get("command")}


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    path, command = sys.argv[1], sys.argv[2:]
    programs = judge_file(path)
    for _ in range(REPEATS if command else 0):
        if not programs:
            break
        names = tests_of(programs, all_tests(command))
        print(f"again, one by one: {' '.join(programs)}: {len(names)} tests", flush=True)
        if os.path.exists(path):
            os.remove(path)
        pattern = "^(" + "|".join(map(re.escape, names)) + ")$"
        if subprocess.run([*command, "--output-on-failure", "--no-tests=error", "-R", pattern], check=False).returncode != 0:
            return 1
        programs = judge_file(path)
    return 1 if programs else 0


if __name__ == "__main__":
    sys.exit(main())
