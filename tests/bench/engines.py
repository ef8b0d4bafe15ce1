#!/usr/bin/env python3
"""Holds libzmq against a raw socket, distag's own engine and the peer, in one table of all rows of sockets.

    engines.py [--rounds N] [--before PROGRAM] PROGRAM [ROW ...]

Each round runs all sides of a batch of rows one after the other, each in processes of its own and without lanes: the
engines zmq and zmtp, the blocking DEALER and ROUTER of libzmq with the same frames (raw), and the peer. A ratio is that
of one round; the table has the median of all rounds, the lowest and the highest. Rows that miss their must are named at
the end, and sides that failed, whose round is left out. --before: distag_bench of a tree without libzmq, which neither zmtp nor a row with lanes may fall behind.
"""
import argparse
import os
import statistics
import sys

from table import PEER_NAMES, PEER_PYTHON, TARGETS, RowFailed, has_lanes, have_peer, rows, spread

TORCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_torch.py")
# By rows that run in one process for each side: the row, what libzmq is held against, and the ratio that must be and
# is to be. "alone": in the unit of the row.
BATCHES = [
    [("rpc_latency_4B_tcp", "raw_tcp_ping_pong_4B", 1.8, 1.4),
     ("rpc_latency_4B_tcp", "zmtp", 2.2, 1.7),
     ("rpc_latency_4B_tcp", "peer", 0.40, 0.25),
     ("chain_100_calls_tcp", "zmtp", 1.6, 1.3),
     ("rpc_return_64MB_tcp", "raw_tcp_ping_pong_64MB", 1.0, 0.6),
     ("rpc_return_64MB_tcp", "zmtp", 1.5, 1.1)],
    [("rpc_latency_4B_curve", "raw_curve_ping_pong_4B", 1.7, 1.4),
     ("rpc_latency_4B_curve", "zmtp", 2.2, 1.7),
     ("rpc_return_64MB_curve", "raw_curve_ping_pong_64MB", 0.8, 0.6),
     ("rpc_return_64MB_curve", "zmtp", 1.25, 1.0)],
    [("rpc_async_per_call", "zmtp", 1.7, 1.3),
     ("rpc_throughput_8_threads", "zmtp", 2.6, 1.8),
     ("rpc_latency_1MB", "zmtp", 1.4, 1.1)],
    [("idle_64", "zmtp", 1.7, 1.3),
     ("idle_64", "alone", 0.15, None),
     ("memory_per_worker", "zmtp", 2.7, 2.0)],
    [("start_64_tcp", "zmtp", 2.2, 1.6)],
    [("start_64_curve", "zmtp", 2.2, 1.6)],
]
WITH_LANES = [name for name in dict.fromkeys(target[0] for target in TARGETS) if has_lanes(name)]
MOST_TO_BEFORE, GOAL_TO_BEFORE = 1.02, 1.0


def over_sockets(engine):
    return {"DISTAG_LANE": "0", "DISTAG_SOCKET_ENGINE": engine}


class Figures:
    """The p50 of each round, by side and row. A round in which a side failed has no figure of it."""

    def __init__(self):
        self.of = {}
        self.units = {}
        self.failures = []

    def run(self, turn, side, command, environment=None, name=None):
        """Takes the rows of a side; its only one as that of `name`, where given."""
        try:
            found = rows(command, environment)
        except RowFailed as failure:
            self.failures.append("round %d, %s: %s" % (turn + 1, side, failure))
            return
        if name:
            found = {name: next(iter(found.values()))}
        for row, figures in found.items():
            self.of.setdefault((side, row), {})[turn] = figures["p50"]
            self.units[row] = figures["unit"]

    def numbers(self, side, row):
        return list(self.of.get((side, row), {}).values())

    def tell(self, side, row):
        found = self.numbers(side, row)
        return "%.2f %s" % (statistics.median(found), self.units[row]) if found else "not measured"

    def ratios(self, side, row, other_side, other_row):
        ours, others = self.of.get((side, row), {}), self.of.get((other_side, other_row), {})
        return [ours[turn] / others[turn] for turn in ours if turn in others]


def measure(figures, turn, batch, program, before, peer_there):
    names = list(dict.fromkeys(row for row, *_ in batch))
    raw = [against for _, against, *_ in batch if against.startswith("raw_")]
    if raw:
        figures.run(turn, "raw", [program, *raw, "--json"])
    for engine in ("zmq", "zmtp"):
        figures.run(turn, engine, [program, *names, "--json"], over_sockets(engine))
    if before:
        figures.run(turn, "before", [before, *names, "--json"], {"DISTAG_LANE": "0"})
    for row, against, *_ in batch:
        if against == "peer" and peer_there:
            figures.run(turn, "peer", [PEER_PYTHON, TORCH, PEER_NAMES.get(row, row), "--json"], name=row)


def print_engines(figures, batches):
    """Gives the rows that miss their must."""
    missed = []
    print("| row | libzmq | against | its p50 | ratio | must | goal |")
    print("|---|---|---|---|---|---|---|")
    for row, against, must, goal in [line for batch in batches for line in batch]:
        if against == "alone":
            numbers, other = figures.numbers("zmq", row), ""
        else:
            side = "raw" if against.startswith("raw_") else against
            numbers = figures.ratios("zmq", row, side, against if side == "raw" else row)
            other = figures.tell(side, against if side == "raw" else row)
        print("| %s | %s | %s | %s | %s | %s | %s |" % (
            row, figures.tell("zmq", row), against, other, spread(numbers), must, goal or ""))
        if numbers and statistics.median(numbers) > must:
            missed.append("%s against %s: %.2f, must %s" % (row, against, statistics.median(numbers), must))
    return missed


def print_before(figures, batches):
    missed = []
    print("\n| row | this tree | the tree before | ratio | must | goal |")
    print("|---|---|---|---|---|---|")
    names = list(dict.fromkeys(row for batch in batches for row, *_ in batch))
    for sides, name in [(("zmtp", "before"), name) for name in names] + [
            (("lane", "lane before"), name) for name in WITH_LANES if ("lane", name) in figures.of]:
        ratios = figures.ratios(sides[0], name, sides[1], name)
        print("| %s, %s | %s | %s | %s | %s | %s |" % (name, sides[0], figures.tell(sides[0], name),
                                                       figures.tell(sides[1], name), spread(ratios), MOST_TO_BEFORE,
                                                       GOAL_TO_BEFORE))
        if ratios and statistics.median(ratios) > MOST_TO_BEFORE:
            missed.append("%s (%s) against the tree before: %.2f" % (name, sides[0], statistics.median(ratios)))
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", help="distag_bench of a tree without libzmq")
    parser.add_argument("program")
    parser.add_argument("rows", nargs="*")
    given = parser.parse_intermixed_args()
    batches = [[line for line in batch if not given.rows or line[0] in given.rows] for batch in BATCHES]
    batches = [batch for batch in batches if batch]
    lanes = [name for name in WITH_LANES if not given.rows or name in given.rows]
    peer_there = have_peer()
    figures = Figures()
    for turn in range(given.rounds):
        for batch in batches:
            measure(figures, turn, batch, given.program, given.before, peer_there)
        if given.before and lanes:
            figures.run(turn, "lane", [given.program, *lanes, "--json"])
            figures.run(turn, "lane before", [given.before, *lanes, "--json"])
    missed = print_engines(figures, batches)
    if given.before:
        missed += print_before(figures, batches)
    print("\n" + ("missed: " + "; ".join(missed) if missed else "no row misses its must"))
    return "\n".join(figures.failures) or 0


if __name__ == "__main__":
    sys.exit(main())
