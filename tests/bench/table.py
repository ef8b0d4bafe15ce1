#!/usr/bin/env python3
"""Runs the benchmark program and the peer's script alternately and prints one table of medians with ratios.

    table.py [--rounds N] PROGRAM [ROW ...]

Each round runs all sides of a row one after the other, each in processes of its own: distag, distag with DISTAG_LANE=0
(for rows between processes), and the peer. A ratio is that of one round; the table has the median of all rounds, the
lowest and the highest. So the machine's drift hits both sides, and a placement of threads only one round. engines.py
has the rows of sockets by engine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# The row, what it may cost at most as a multiple of what, and the row that names that ("own": another one of distag).
# "beside": the row itself runs both sides in turn and gives their ratio; the last item says what the other side is.
TARGETS = [
    ("rpc_latency_4B", "raw", 2.0, "raw_ping_pong_4B"),
    ("rpc_latency_4B", "peer", 0.12, None),
    ("rpc_latency_4B_paused", "peer", 0.35, None),
    ("rpc_latency_4B_curve", "own", None, "rpc_latency_4B_tcp"),
    ("rpc_return_64MB_curve", "own", None, "rpc_return_64MB_tcp"),
    ("rpc_latency_1MB", "raw", None, "raw_ping_pong_1MB"),
    ("rpc_latency_1MB", "peer", 0.12, None),
    ("rpc_latency_64MB", "peer", 0.06, None),
    ("rpc_lend_64MB", "peer", 0.005, None),
    ("rpc_async_per_call", "peer", 0.05, None),
    ("rpc_throughput_8_threads", "peer", None, None),
    ("autograd_step_9", "peer", 0.08, None),
    ("autograd_step_1MB", "peer", 0.20, None),
    ("chain_100_calls", "alone", 25.0, None),
    ("chain_100_calls", "peer", None, None),
    ("chain_100_calls_tcp", "alone", None, None),
    ("rref_create_to_here", "peer", 0.10, None),
    ("pipeline_mlp_step", "peer", 0.68, None),
    ("parameter_server_step", "peer", 0.35, None),
    ("local_small_chain", "peer", 0.28, None),
    ("local_elementwise_1M", "peer", 0.42, None),
    ("local_mlp_step", "peer", 0.95, None),
    ("local_softmax_512x1024", "peer", 0.72, None),
    ("local_conv2d", "peer", 0.88, None),
    ("lenet_step", "peer", None, None),
    ("adam_1M", "peer", None, None),
    ("embedding_step", "peer", None, None),
    ("attention_fwd_bwd", "peer", None, None),
    ("local_matmul_512", "cblas", 1.05, "cblas_sgemm_512"),
    ("all_reduce_4B_2", "peer", 1.0, None),
    ("all_reduce_4B_4", "peer", 1.0, None),
    ("all_reduce_64KB_2", "peer", 1.0, None),
    ("all_reduce_64KB_4", "peer", 1.0, None),
    ("all_reduce_1MB_2", "peer", 1.1, None),
    ("all_reduce_1MB_4", "peer", 1.0, None),
    ("all_reduce_25MB_2", "peer", 1.1, None),
    ("all_reduce_25MB_4", "peer", 1.0, None),
    ("all_reduce_64MB_2", "peer", 1.1, None),
    ("all_reduce_64MB_4", "peer", 1.0, None),
    ("all_gather_64MB_2", "peer", 1.1, None),
    ("all_gather_64MB_4", "peer", 1.1, None),
    ("data_parallel_step", "peer", 1.0, None),
    ("fsdp_like_step", "peer", 1.0, None),
    # Of themselves, in the unit of the row.
    ("sharded_op_placed", "alone", 5.0, None),
    ("sharded_op_new", "alone", 100.0, None),
    ("redistribute_plan_64", "alone", 2000.0, None),
    ("plan_100_ops", "alone", 500.0, None),
    ("plan_400_ops", "alone", 2000.0, None),
    ("plan_24_layers", "alone", 10000.0, None),
    ("auto_mlp_step", "beside", 1.05, "the best of forms by hand"),
    ("auto_transformer_step", "beside", 1.05, "the best of forms by hand"),
    ("auto_embedding_step", "beside", 1.05, "the best of forms by hand"),
    ("planned_op", "beside", 1.02, "marked by hand"),
    ("loader_ahead_step", "beside", 1.05, "a batch that is there"),
    ("loader_waits_step", "beside", 1.05, "the source alone"),
    ("loader_of_mapped_file", "peer", 1.0, None),
    ("save_256MB", "dd", 1.3, "dd_write_256MB"),
    ("save_256MB", "peer", 1.0, None),
    ("load_256MB", "dd", 1.3, "dd_read_256MB"),
    ("load_256MB", "peer", 1.0, None),
    ("load_new_256MB", "dd", 1.3, "dd_read_256MB"),
    ("load_new_256MB", "peer", 1.0, None),
    ("save_async_call", "alone", 2.0, None),
    ("save_async_step", "beside", 1.15, "steps alone"),
    ("load_memory", "alone", 32.0, None),
    ("load_into_memory", "alone", 32.0, None),
    ("start_64", "alone", None, None),
    ("start_64_tcp", "alone", None, None),
    ("start_64_curve", "own", 1.5, "start_64_tcp"),
    ("idle_64", "alone", 0.1, None),
    ("memory_per_worker", "alone", None, None),
]
# Rows of which DISTAG_LANE=0 tells nothing.
NO_OTHER_WAY = ("lenet_step", "adam_1M", "embedding_step", "attention_fwd_bwd", "sharded_op_placed", "sharded_op_new",
         "redistribute_plan_64", "idle_64", "memory_per_worker", "rpc_latency_4B_curve", "chain_100_calls_tcp",
         "rpc_return_64MB_curve", "start_64_tcp", "start_64_curve", "plan_100_ops", "plan_400_ops", "plan_24_layers",
         "auto_mlp_step", "auto_transformer_step", "auto_embedding_step", "planned_op", "loader_ahead_step",
         "loader_waits_step", "loader_of_mapped_file", "save_256MB", "load_256MB", "load_new_256MB", "save_async_call",
         "save_async_step", "load_memory", "load_into_memory")
PEER_NAMES = {"local_small_chain": "local_small", "local_elementwise_1M": "local_elementwise",
              "local_mlp_step": "local_mlp", "local_softmax_512x1024": "local_softmax",
              "local_matmul_512": "local_matmul", "local_conv2d": "local_conv", "rpc_latency_4B_tcp": "rpc_latency_4B",
              "rpc_lend_64MB": "rpc_latency_64MB", "load_new_256MB": "load_256MB"}
PEER_PYTHON = "/usr/bin/python3"


class RowFailed(Exception):
    """A side that ended with an error, and what it wrote."""


def rows(command, environment=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise RowFailed("%s failed with %d:\n%s" % (" ".join(command), done.returncode, done.stderr))
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            found[row["name"]] = row
    return found


def have_peer():
    return os.path.exists(PEER_PYTHON) and subprocess.run(
        [PEER_PYTHON, "-c", "import torch.distributed.rpc"], stderr=subprocess.DEVNULL).returncode == 0


def spread(ratios):
    if not ratios:
        return ""
    return "%.2f (%.2f to %.2f)" % (statistics.median(ratios), min(ratios), max(ratios))


def has_lanes(row):
    """Whether the row goes between processes of a machine, by lanes unless DISTAG_LANE=0."""
    return not row.startswith("local_") and row not in NO_OTHER_WAY


def measure(program, script, row, rounds, peer_there):
    """The p50 of each round: of distag, without the lane, of the peer, and of the rows that it is held against."""
    references = [t[3] for t in TARGETS if t[0] == row and t[3] and t[1] != "beside"]
    sides = {"distag": [], "off": [], "peer": [], "beside": [], **{name: [] for name in references}}
    unit = ""
    for _ in range(rounds):
        ours = rows([program, row, *references, "--json"])
        unit = ours[row]["unit"]
        sides["distag"].append(ours[row]["p50"])
        if "sides" in ours[row]:
            unit = ours[row]["of"]
            sides["beside"].append(ours[row]["sides"])
        for name in references:
            sides[name].append(ours[name]["p50"])
        if has_lanes(row):
            sides["off"].append(rows([program, row, "--json"], {"DISTAG_LANE": "0"})[row]["p50"])
        if peer_there and any(t[0] == row and t[1] == "peer" for t in TARGETS):
            found = rows([PEER_PYTHON, script, PEER_NAMES.get(row, row), "--json"])
            sides["peer"].append(next(iter(found.values()))["p50"])
    return sides, unit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("program")
    parser.add_argument("rows", nargs="*")
    given = parser.parse_intermixed_args()
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_torch.py")
    peer_there = have_peer()
    failures = []
    print("| row | distag p50 | against lane off | against | p50 | ratio | at most |")
    print("|---|---|---|---|---|---|---|")
    for row in dict.fromkeys(t[0] for t in TARGETS):
        if given.rows and row not in given.rows:
            continue
        try:
            sides, unit = measure(given.program, script, row, given.rounds, peer_there)
        except RowFailed as failure:
            failures.append(failure)
            print("| %s | failed | | | | | |" % row, flush=True)
            continue
        off = spread([a / b for a, b in zip(sides["distag"], sides["off"])])
        for name, kind, limit, reference in TARGETS:
            if name != row:
                continue
            if kind == "alone":
                p50 = sides["distag"]
                print("| %s | %s %s | %s | | | | %s |" % (row, spread(p50), unit, off, limit or ""), flush=True)
                continue
            if kind == "beside":
                mine, theirs = (statistics.median(side) for side in zip(*sides["beside"]))
                print("| %s | %.1f %s | %s | %s | %.1f %s | %s | %s |" % (
                    row, mine, unit, off, reference, theirs, unit, spread(sides["distag"]), limit), flush=True)
                continue
            ours = sides["distag"]
            other = sides[reference or "peer"]
            against = "%.1f %s" % (statistics.median(other), unit) if other else "not installed"
            ratio = spread([a / b for a, b in zip(ours, other)])
            print("| %s | %.1f %s | %s | %s | %s | %s | %s |" % (
                row, statistics.median(ours), unit, off, reference or kind, against, ratio,
                limit or ""), flush=True)
    return "\n".join(map(str, failures)) or 0


if __name__ == "__main__":
    sys.exit(main())
