#!/usr/bin/python3
"""What driving distag from Python costs above C: pipeline_mlp_step and rpc_latency_4B, by both in turn, with the same
process in C at the other end. One thread for each process.

usage: from_python.py [ROUNDS]   5 rounds unless told; DISTAG_BUILD_DIR: the build, build/release unless told

Prints the median of each side and the median of the rounds' ratios. Exit code 1 if a step takes more than 1.15 times that
of C, or a call 25 us more.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DISTAG_BUILD_DIR", os.path.join(TOP, "build", "release"))
BENCH = os.path.join(BUILD, "tests", "distag_bench")
MOST_TIMES, MOST_MICROSECONDS = 1.15, 25


def timed(run, count, warm):
    """The median of seconds."""
    taken = []
    for i in range(warm + count):
        begin = time.perf_counter()
        run()
        if i >= warm:
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def pipeline(distag, worker):
    """As tests/bench/training.cpp has it."""
    weight = (distag.randn(1, (512, 784)) / 28).requires_grad_()
    bias = distag.zeros((512,)).requires_grad_()
    second = [worker.remote("worker1", "make_parameter", *shape) for shape in
              ((512, 512, 512), (512, 0, 0), (10, 512, 512), (10, 0, 0))]
    sgd = distag.optim.SGD(worker, [weight, bias, *second], lr=0.05)
    x = distag.rand(5, (128, 784))
    y = distag.tensor([i * 7 % 10 for i in range(128)])

    def step():
        with worker.context() as context:
            out = worker.call("worker1", "second_half", *second, distag.linear(x, weight, bias).relu())
            context.backward(distag.cross_entropy(out, y))
            sgd.step(context)

    return timed(step, 60, 10) * 1e3


def latency(distag, worker):
    x = distag.ones((1,))
    return timed(lambda: worker.call("worker1", "neg", x), 4000, 20) * 1e6


def by_python():
    import distag

    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([BENCH, "--serve", f"file://{folder}"]) as other:
            with distag.Worker(rank=0, world_size=2, rendezvous=f"file://{folder}") as worker:
                taken = {"pipeline_mlp_step": pipeline(distag, worker), "rpc_latency_4B": latency(distag, worker)}
            other.wait(60)
    print(json.dumps(taken))


def run(command):
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(rounds):
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", DISTAG_LIBRARY=os.path.join(BUILD, "libdistag.so"),
                      PYTHONPATH=os.path.join(TOP, "bindings", "python"), PYTHONDONTWRITEBYTECODE="1")
    python, c = [], []
    for _ in range(rounds):
        c.append({row["name"]: row["p50"] for row in run([BENCH, "pipeline_mlp_step", "rpc_latency_4B", "--json"])})
        python += run([sys.executable, "-B", os.path.abspath(__file__), "--python"])
    failed = False
    for name, unit in (("pipeline_mlp_step", "ms"), ("rpc_latency_4B", "us")):
        ratios = [a[name] / b[name] for a, b in zip(python, c)]
        more = statistics.median(a[name] - b[name] for a, b in zip(python, c))
        mine, theirs = (statistics.median(side[name] for side in sides) for sides in (python, c))
        print(f"{name:20} Python {mine:8.2f} {unit}  C {theirs:8.2f} {unit}  ratio {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}), {more:+.2f} {unit}")
        failed |= statistics.median(ratios) > MOST_TIMES if unit == "ms" else more > MOST_MICROSECONDS
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--python"]:
        by_python()
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
