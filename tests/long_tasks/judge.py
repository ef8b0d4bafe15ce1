#!/usr/bin/python3
"""Judges the tasks of loops that took more than 5 ms of the processor while the suite ran.

usage: judge.py FILE [COMMAND...]   FILE as note_long_tasks() writes it: a line each of microseconds, program and task

A task that is long takes long each time. On a machine that others use, any task may at times find its caches gone or its
processor lent to somebody else, and that counts as its own time: so a task fails from the tenth time on in one program.
One that copies payload may be the first to touch a huge page, which the machine clears then: that time, measured here, is
allowed as well. A program that the suite runs under an instruction counter, fifty times slower, is left out. Prints all
that were long, most often first.

With a COMMAND, which runs the test of the name that a pattern fits, a program with a task that fails runs again, with
nothing beside it, up to twice: a task that was long for the sake of its neighbours is not long then. Exit code 1 if a task
fails in each of these runs.
"""
import collections
import mmap
import os
import re
import subprocess
import sys
import time

TIMES = 10
REPEATS = 2
LIMIT = 5_000  # microseconds
HUGE_PAGE = 2 << 20
COUNTED = {"hot_paths"}  # runs under callgrind alone


def name_of(task):
    """`distag::Worker::shutdown(distag::Nanos)::<lambda()>` of the long name that a compiler gives a task."""
    found = re.search(r"\[with (?:D|Call|F) = (.*?)(?:; [A-Z]\w* = |\]$)", task)
    return found.group(1) if found else task


def time_to_clear_a_page():
    """Microseconds, of the slowest of nine."""
    slowest = 0
    with mmap.mmap(-1, 10 * HUGE_PAGE) as memory:  # nine whole pages, wherever it begins
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(1, 10):
            begin = time.thread_time_ns()
            memory[page * HUGE_PAGE] = 1
            slowest = max(slowest, time.thread_time_ns() - begin)
    return slowest // 1000


def judge(lines, limit):
    """(task, program, times, longest in microseconds) of each that was long, most often first."""
    seen = collections.defaultdict(list)
    for line in lines:
        taken, program, task = line.rstrip("\n").split(" ", 2)
        if int(taken) > limit and program not in COUNTED:
            seen[name_of(task), program].append(int(taken))
    rows = [(task, program, len(taken), max(taken)) for (task, program), taken in seen.items()]
    return sorted(rows, key=lambda row: (-row[2], row[:2]))


def judge_file(path):
    """The programs in which a task fails. Prints each task that was long."""
    rows = []
    limit = LIMIT + time_to_clear_a_page()
    if os.path.exists(path):  # nothing is written where no task was long
        with open(path, encoding="utf-8") as file:
            rows = judge(file, limit)
    for task, program, times, longest in rows:
        verdict = "FAILED" if times >= TIMES else "once" if times == 1 else f"{times} times"
        print(f"long task: {verdict}: {task}, {times} x in {program}, at most {longest} us")
    failed = [program for _, program, times, _ in rows if times >= TIMES]
    print(f"tasks of loops: {len(failed)} took more than {limit} us at least {TIMES} times", flush=True)
    return sorted(set(failed))


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    path, command = sys.argv[1], sys.argv[2:]
    programs = judge_file(path)
    for _ in range(REPEATS if command else 0):
        if not programs:
            break
        print(f"again, one by one: {' '.join(programs)}", flush=True)
        if os.path.exists(path):
            os.remove(path)
        for program in programs:
            if subprocess.run([*command, f"^{program}$"], check=False).returncode != 0:
                return 1
        programs = judge_file(path)
    return 1 if programs else 0


if __name__ == "__main__":
    sys.exit(main())
