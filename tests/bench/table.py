#!/usr/bin/env python3
"""Runs the benchmark program and the peer's script alternately and prints one table of medians with ratios.

    table.py PROGRAM [ROW ...]

Each side runs twice, in turn, and the lower median counts: the machine's drift hits both.
"""
import json
import os
import subprocess
import sys

# The row, what it may cost at most as a multiple of what, and the row that names that.
TARGETS = [
    ("rpc_latency_4B", "raw", 2.0, "raw_ping_pong_4B"),
    ("rpc_latency_4B", "peer", 0.5, None),
    ("rpc_latency_1MB", "raw", None, "raw_ping_pong_1MB"),
    ("rpc_latency_1MB", "peer", 0.5, None),
    ("rpc_latency_64MB", "peer", 0.5, None),
    ("rpc_async_per_call", "peer", 0.5, None),
    ("autograd_step_9", "peer", 0.5, None),
    ("autograd_step_1MB", "peer", 0.5, None),
    ("rref_create_to_here", "peer", 0.5, None),
    ("pipeline_mlp_step", "peer", 0.9, None),
    ("parameter_server_step", "peer", 0.9, None),
    ("local_small_chain", "peer", 1.0, None),
    ("local_elementwise_1M", "peer", 1.0, None),
    ("local_mlp_step", "peer", 1.0, None),
    ("local_softmax_512x1024", "peer", 1.0, None),
    ("local_conv2d", "peer", 1.0, None),
    ("local_matmul_512", "cblas", 1.05, "cblas_sgemm_512"),
]
PEER_NAMES = {"local_small_chain": "local_small", "local_elementwise_1M": "local_elementwise",
              "local_mlp_step": "local_mlp", "local_softmax_512x1024": "local_softmax",
              "local_matmul_512": "local_matmul", "local_conv2d": "local_conv"}
PEER_PYTHON = "/usr/bin/python3"


def rows(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (" ".join(command), done.stderr))
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            found[row["name"]] = row
    return found


def best(old, new):
    for name, row in new.items():
        if name not in old or row["p50"] < old[name]["p50"]:
            old[name] = row


def have_peer():
    return os.path.exists(PEER_PYTHON) and subprocess.run(
        [PEER_PYTHON, "-c", "import torch.distributed.rpc"], stderr=subprocess.DEVNULL).returncode == 0


def main():
    program, wanted = sys.argv[1], sys.argv[2:]
    chosen = [t for t in TARGETS if not wanted or t[0] in wanted]
    ours_names = sorted({t[0] for t in chosen} | {t[3] for t in chosen if t[3]})
    peer_names = sorted({PEER_NAMES.get(t[0], t[0]) for t in chosen if t[1] == "peer"})
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_torch.py")
    peer_there = have_peer()
    ours, peer = {}, {}
    for _ in range(2):
        best(ours, rows([program] + ours_names + ["--json"]))
        if peer_there and peer_names:
            best(peer, rows([PEER_PYTHON, script] + peer_names + ["--json"]))
    print("| row | distag p50 | p99 | against | p50 | ratio | at most |")
    print("|---|---|---|---|---|---|---|")
    for name, kind, limit, reference in chosen:
        if name not in ours:
            continue
        row = ours[name]
        other = ours.get(reference) if reference else peer.get(name)
        title = reference or "peer"
        against = "%.1f %s" % (other["p50"], other["unit"]) if other else "not installed"
        ratio = "%.2f" % (row["p50"] / other["p50"]) if other else ""
        print("| %s | %.1f %s | %.1f | %s | %s | %s | %s |" % (
            name, row["p50"], row["unit"], row["p99"], title, against, ratio, limit or ""))


if __name__ == "__main__":
    main()
