#!/usr/bin/python3
"""The peer's side of `run.sh ops`: the cases of ops.json by PyTorch (Debian: python3-torch), with the same JSON lines.

    /usr/bin/python3 peer_ops.py ops.json [NAME ...]
"""
import json
import math
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import torch

torch.set_num_threads(1)
SIZES = (64, 64 << 10, 4 << 20)
LEAST_SECONDS = 0.004
SAMPLES = 3


def make_input(text, names):
    kind, *words = text.split()
    shape = [names[word] if word in names else int(word) for word in words]
    if ":" in kind:
        below = kind.split(":")[1]
        numbers = torch.arange(math.prod(shape)) * 7919 % (names[below] if below in names else int(below))
        return numbers.reshape(shape)
    if kind == "bool":
        return ((torch.arange(math.prod(shape)) * 7919 >> 3) % 2 == 1).reshape(shape)
    numbers = torch.rand(shape) + .5 if kind == "positive" else torch.rand(shape) * 4 - 2
    return numbers if kind == "fixed" else numbers.requires_grad_()


def measured(run):
    """Microseconds of CPU time for one call: the least of the samples."""
    run()
    best, calls, sample = math.inf, 1, 0
    while sample < SAMPLES:
        start = time.process_time()
        for _ in range(calls):
            run()
        seconds = time.process_time() - start
        if seconds < LEAST_SECONDS:
            calls *= 8 if seconds < LEAST_SECONDS / 8 else 2
            continue
        best = min(best, seconds / calls)
        sample += 1
    return best * 1e6


def measure(case, n):
    side = math.isqrt(n)
    names = {"n": n, "s": side, "h": side // 2}
    inputs = [make_input(text, names) for text in case["inputs"]]
    arguments = ", ".join("x%d" % i for i in range(len(inputs)))
    apply = eval("lambda %s: %s" % (arguments, case["peer"]), {"torch": torch, "F": torch.nn.functional, **names})
    line = {"name": case.get("name", case["op"]), "n": n}

    def forward():
        with torch.no_grad():
            apply(*inputs)
    line["forward"] = measured(forward)
    leaves = [x for x in inputs if x.requires_grad]
    if leaves:
        def roots():  # indices have no gradient
            results = apply(*inputs)
            return [x for x in results if x.requires_grad] if isinstance(results, tuple) else [results]
        seeds = [torch.ones_like(root) for root in roots()]

        def both():
            torch.autograd.backward(roots(), seeds)
            for leaf in leaves:
                leaf.grad = None
        line["both"] = measured(both)
    return line


def main():
    with open(sys.argv[1]) as file:
        cases = json.load(file)["cases"]
    for case in cases:
        if sys.argv[2:] and case.get("name", case["op"]) not in sys.argv[2:]:
            continue
        for n in SIZES:
            print(json.dumps(measure(case, n)), flush=True)


if __name__ == "__main__":
    main()
