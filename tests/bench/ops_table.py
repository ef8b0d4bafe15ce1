#!/usr/bin/env python3
"""Prints one table of all ops at three sizes: distag, the peer where it is installed, and another tree's program.

    ops_table.py [--rounds N] [--before PROGRAM] PROGRAM [NAME ...]

Each round runs all sides one after the other, each in a process of its own, on one thread, in CPU time; distag is called
from C, the peer from Python, which shows at 64 elements. A ratio is that of one round; the table has the median.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(FOLDER, "ops.json")
PEER_PYTHON = "/usr/bin/python3"


def lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s failed" % " ".join(command))
    return {(line["name"], line["n"]): line for line in map(json.loads, done.stdout.splitlines())}


def have_peer():
    return os.path.exists(PEER_PYTHON) and subprocess.run(
        [PEER_PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0


def ratio(ours, others, key, what):
    found = [a[key][what] / b[key][what] for a, b in zip(ours, others) if what in a.get(key, {}) and what in b.get(key, {})]
    return "%.2f" % statistics.median(found) if found else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", help="distag_bench of another tree")
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    sides = {"distag": [given.program, "--ops", CASES, *given.names]}
    if have_peer():
        sides["peer"] = [PEER_PYTHON, os.path.join(FOLDER, "peer_ops.py"), CASES, *given.names]
    if given.before:
        sides["before"] = [given.before, "--ops", CASES, *given.names]
    rounds = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side, command in sides.items():
            rounds[side].append(lines(command))
    against = [side for side in sides if side != "distag"]
    columns = ["op", "n", "forward, us"] + ["/ " + side for side in against] + ["with backward, us"] + ["/ " + side for side in against]
    print("| %s |\n|%s" % (" | ".join(columns), "---|" * len(columns)))
    for key in rounds["distag"][0]:
        cells = [key[0], str(key[1])]
        for what in ("forward", "both"):
            ours = [one[key][what] for one in rounds["distag"] if what in one[key]]
            cells.append("%.2f" % statistics.median(ours) if ours else "")
            cells += [ratio(rounds["distag"], rounds[side], key, what) for side in against]
        print("| %s |" % " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
