"""What a language costs over C: medians of rounds in which both take turns. See README.md.
usage: run.py [--rounds N] [--must ROW=LIMIT...] C_PROGRAM LANGUAGE_PROGRAM     (op: microseconds above C; others: ratio)
With --must a row beyond its limit fails."""
import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

COUNTS = {"call": 3000, "flight": 10000, "op": 50000}


class Pair:
    """A caller and a server."""

    def __init__(self, caller, server):
        self.folder = tempfile.TemporaryDirectory()
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
        self.server = subprocess.Popen(shlex.split(server) + ["serve", self.folder.name], env=environment)
        self.caller = subprocess.Popen(shlex.split(caller) + ["measure", self.folder.name], env=environment, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def measure(self, name):
        self.caller.stdin.write(f"{name} {COUNTS[name]}\n")
        self.caller.stdin.flush()
        return float(self.caller.stdout.readline())

    def leave(self):
        self.caller.stdin.close()
        codes = self.caller.wait(120), self.server.wait(120)
        self.caller.stdout.close()
        self.folder.cleanup()
        return codes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--must", nargs="*", default=[])
    parser.add_argument("programs", nargs=2)
    options = parser.parse_args()
    c, language = options.programs
    pairs = {"c": Pair(c, c), "calls": Pair(language, c), "serves": Pair(c, language)}
    found = {"call": [], "served": [], "flight": [], "op": []}
    for number in range(options.rounds + 1):  # the first warms up
        plain = {name: pairs["c"].measure(name) for name in COUNTS}
        own = {name: pairs["calls"].measure(name) for name in COUNTS}
        row = {"call": own["call"] / plain["call"], "flight": own["flight"] / plain["flight"],
               "op": (own["op"] - plain["op"]) * 1e6,
               "served": pairs["serves"].measure("call") / pairs["c"].measure("call")}
        for name, value in row.items():
            found[name] += [value] if number else []
    codes = [pair.leave() for pair in pairs.values()]
    limits = {name: float(limit) for name, limit in (each.split("=") for each in options.must)}
    failed = any(code != (0, 0) for code in codes)
    for name, values in found.items():
        median = statistics.median(values)
        beyond = median > limits.get(name, float("inf"))
        failed |= beyond
        print(f"{name:7} {median:6.2f}{' us above C' if name == 'op' else 'x'}  (of {min(values):.2f} to {max(values):.2f})"
              f"{'  beyond ' + str(limits[name]) if beyond else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
