#!/usr/bin/env python3
"""Counts the instructions of hot paths under callgrind, and compares them with those in counts.txt.

    check.py PROGRAM [--renew]

An instruction count knows nothing of noise: +5 % fails. A function counts on the threads that run it, from its call to
its return: of a remote call the share of the caller, and what it takes to encode its two messages. How often loops look
around depends on how threads meet, and is left out, as is the decoding, whose count wanders by 6 %. Other threads can
make a count larger, so one that fails is taken three times, and the least counts. Who makes a path shorter by more than
5 % renews the table.
Exit status 77 (skipped, with its reason; a failure where DISTAG_CI is set): the counts are those of gcc 12 and glibc on
x86-64 with valgrind.
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT = 0.05
RUNS = (100, 300)  # the difference is that of 200, without what begins and ends
HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "counts.txt")


def skip(reason):
    print("skipped: " + reason)
    sys.exit(1 if os.environ.get("DISTAG_CI") else 77)


def count(program, path, function, runs):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=" + function,
             "--callgrind-out-file=" + out, program, path, str(runs)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"})
        if done.returncode != 0:
            sys.exit("%s %s failed:\n%s" % (program, path, done.stderr))
        with open(out) as file:
            return int(re.search(r"^(?:summary|totals): (\d+)", file.read(), re.MULTILINE).group(1))


def measure(program, path, function):
    few, many = (count(program, path, function, runs) for runs in RUNS)
    return (many - few) / (RUNS[1] - RUNS[0])


def main():
    program, renew = sys.argv[1], "--renew" in sys.argv[2:]
    if platform.machine() != "x86_64":
        skip("the counts are those of x86-64")
    if shutil.which("valgrind") is None:
        skip("valgrind is not installed")
    with open(TABLE) as file:
        lines = file.read().splitlines()
    complaints, counted = [], []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        before, path, function = line.split(None, 2)
        now = measure(program, path, function)
        for _ in range(2):
            if now > float(before) * (1 + LIMIT):
                now = min(now, measure(program, path, function))
        counted.append("%.0f %s %s" % (now, path, function))
        change = now / float(before) - 1
        print("%9.0f instructions, %+.1f %% of %s: %s, %s" % (now, 100 * change, before, path, function))
        if change > LIMIT or now == 0:
            complaints.append("%s of %s takes %.0f instructions, not %s: find out why, or renew %s" %
                              (function, path, now, before, os.path.basename(TABLE)))
    if renew:
        comments = [line for line in lines if line.startswith("#")]
        with open(TABLE, "w") as file:
            file.write("\n".join(comments + counted) + "\n")
    elif complaints:
        sys.exit("\n".join(complaints))


if __name__ == "__main__":
    main()
