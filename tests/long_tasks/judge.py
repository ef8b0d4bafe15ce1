#!/usr/bin/python3
"""Judges the tasks of loops that took more than 5 ms of the processor while the suite ran.

usage: judge.py FILE   as note_long_tasks() writes it: a line each of microseconds, program and task

A task that is long takes long each time. On a machine that others use, any task may at times find its caches gone or its
processor lent to somebody else, and that counts as its own time: so a task fails from the tenth time on in one program.
One that copies payload may be the first to touch a huge page, which the machine clears then: that time, measured here, is
allowed as well. A program that the suite runs under an instruction counter, fifty times slower, is left out. Prints all
that were long, most often first. Exit code 1 if one fails.
"""
import collections
import mmap
import os
import re
import sys
import time

TIMES = 10
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


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows = []
    limit = LIMIT + time_to_clear_a_page()
    if os.path.exists(sys.argv[1]):  # nothing is written where no task was long
        with open(sys.argv[1], encoding="utf-8") as file:
            rows = judge(file, limit)
    for task, program, times, longest in rows:
        verdict = "FAILED" if times >= TIMES else "once" if times == 1 else f"{times} times"
        print(f"long task: {verdict}: {task}, {times} x in {program}, at most {longest} us")
    failed = sum(times >= TIMES for _, _, times, _ in rows)
    print(f"tasks of loops: {failed} took more than {limit} us at least {TIMES} times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
