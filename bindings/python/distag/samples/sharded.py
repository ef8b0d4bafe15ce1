"""One program, run by every worker of a mesh, trains a model whose tensors are cut over them (samples/12_sharded.c).

    distag run -n 4 python3 -m distag.samples.sharded [data | model | fully | both]

data: each worker has all weights and a part of the batch; model: a part of the weights and all of the batch; fully: a
part of both, weights are gathered for the moment of their use; both: a grid of 2 by n / 2 workers."""
from __future__ import annotations

import sys

import distag
from distag import optim

STEPS = 100
SHAPES = ((32, 8), (32,), (4, 32), (4,))  # weights are [out, in]

# The sizes of "data" and "model", -1 being the rest of the workers; the specs of the batch and of the parameters.
PLANS: dict[str, tuple[tuple[int, int], distag.Spec, tuple[distag.Spec, ...]]] = {
    "data": ((-1, 1), ("data", None), ((None, None), (None,), (None, None), (None,))),
    "model": ((1, -1), (None, None), (("model", None), ("model",), (None, "model"), (None,))),
    "fully": ((-1, 1), ("data", None), (("data", None), ("data",), ("data", None), ("data",))),
    "both": ((2, -1), ("data", None), (("model", None), ("model",), (None, "model"), (None,))),
}


def make(mesh: distag.Mesh, spec: distag.Spec, seed: int, shape: tuple[int, ...]) -> distag.Tensor:
    """The same random numbers on every worker, of which each keeps its part."""
    return mesh.shard(distag.randn(seed, shape, distag.float64) * 0.3, spec)


def train(worker: distag.Worker, name: str) -> None:
    sizes, batch, specs = PLANS[name]
    with worker.mesh(sizes, ("data", "model")) as mesh:
        x, y = make(mesh, batch, 1, (64, 8)), make(mesh, batch, 2, (64, 4))
        parameters = [make(mesh, spec, 3 + i, SHAPES[i]).requires_grad_() for i, spec in enumerate(specs)]
        adam = optim.Adam(worker, parameters, lr=0.01)
        w1, b1, w2, b2 = parameters
        for step in range(1, STEPS + 1):
            with mesh.context() as context:  # its backward pass is one of all workers
                loss = distag.mse_loss(distag.linear(distag.linear(x, w1, b1).tanh(), w2, b2), y)
                context.backward(loss)
                adam.step(context)
                value = loss.gather().item()
            if worker.rank == 0 and step in (1, STEPS):
                print(f"step {step:3}   loss {value:.9f}")
        if worker.rank == 0:
            stats = mesh.stats()
            counts = (f"{stats[kind] // STEPS} {kind}" for kind in ("all_reduces", "all_gathers", "reduce_scatters"))
            print(f"{name}: the first weight lies as {w1.spec}; a step has {', '.join(counts)}")


def main() -> None:
    with distag.Worker() as worker:  # rank, size and address come from distag run
        train(worker, sys.argv[1] if len(sys.argv) > 1 else "data")


if __name__ == "__main__":
    main()
