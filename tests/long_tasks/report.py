#!/usr/bin/python3
"""Tells the tasks of loops that took more than 5 ms of the processor while the suite ran. A report: it fails nothing.

usage: report.py FILE   FILE as note_long_tasks() writes it: a line each of microseconds, page faults, process, program and
                        task

A task that is long takes long each time. On a machine that others use, any task may at times find its caches gone or its
processor lent to somebody else, and that counts as its own time: so those are worth a look that were long ten times in one
program. The first time in a process does not count: to start, a worker finds and binds the functions of libzmq, and makes
its first context and thread, which takes 5 to 10 ms where nothing of it is at hand, and happens before anybody is served.
One that copies payload, or is the first to call a library, waits for the system to bring in pages: what a page takes is
measured here, from 0.3 us to 20 us in a virtual machine, and for each page fault so much more is allowed. A program that
the suite runs under an instruction counter, fifty times slower, is left out. Prints all that were long, most often first.
"""
import collections
import mmap
import os
import re
import sys
import time

TIMES = 10
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


def long_tasks(lines, limit, of_fault):
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


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows = []
    limit = LIMIT + round(time_to_touch(HUGE_PAGE, mmap.MADV_HUGEPAGE, HUGE_PAGE))
    pages = 256
    of_fault = time_to_touch(pages * PAGE, mmap.MADV_NOHUGEPAGE, PAGE) / pages
    if os.path.exists(sys.argv[1]):  # nothing is written where no task was long
        with open(sys.argv[1], encoding="utf-8") as file:
            rows = long_tasks(file, limit, of_fault)
    for task, program, times, longest in rows:
        print(f"long task: {'often: ' if times >= TIMES else ''}{task}, {times} x in {program}, at most {longest} us")
    often = sum(times >= TIMES for _, _, times, _ in rows)
    print(f"tasks of loops: {often} took more than {limit} us and {of_fault:.1f} us for each page fault at least {TIMES} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
