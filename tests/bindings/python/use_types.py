"""A program for the type checker, never run: what users write has the types they expect."""
from typing import Any

import distag
from distag import dtensor, nn, optim


@distag.function
def forward(x: distag.Tensor, layer: distag.RRef) -> distag.Tensor:
    weight: distag.Tensor = layer.local().weight
    return (x @ weight).relu().sum(dims=0, keepdim=True)


@distag.function("renamed")
def other(count: int) -> float:
    return 0.5 * count


async def train(worker: distag.Worker, x: distag.Tensor) -> float:
    model = nn.Sequential(nn.Linear(4, 3), distag.tanh, nn.Linear(3, 2))
    sgd = optim.SGD(worker, [model], lr=0.1)
    with worker.context() as context:
        layer: distag.RRef = worker.remote("ps", "make_layer", 64, 10)
        answer: Any = await worker.call_async("ps", forward, x, layer)
        loss: distag.Tensor = distag.cross_entropy(model(x) + answer, distag.tensor([0, 1]))
        context.backward(loss)
        gradients: distag.Gradients = context.gradients()
        largest: distag.Tensor = gradients[x].max()
        await sgd.step_async(context)
        mixed: distag.Tensor = 2 - x * [1.0, 2.0] @ [[1.0, 2.0], [3.0, 4.0]]
        distag.optim.Adam(worker, mixed[0, ..., None]).clip(context, max_norm=1.0, timeout=distag.FOREVER)
    return float(loss) + float(largest) + other(3)


def shard(worker: distag.Worker, x: distag.Tensor) -> float:
    with worker.mesh((2, -1), ("data", "model"), timeout=5.0, hidden_moves="refuse") as mesh:
        distag.mark_sharding(x, mesh, ("data", None, ("model",)))
        distag.distribute_tensor(x, mesh, [distag.Shard(0), distag.Replicate()], src_data_rank=None)
        whole: distag.Tensor = x.gather()
        maybe: distag.Tensor | None = x.gather(rank=1)
        picked: distag.Tensor = x.gather(distag.tensor([0]), 0)
        spec: str | None = x.redistribute("S(0), R").spec
        reduced: distag.Tensor = mesh.all_reduce(whole, "data", "max")
        later: distag.Future[distag.Tensor] = mesh.all_gather_async(picked)
        box: distag.Box = mesh.box(("data", None), (4, 4))
        with mesh.context() as context:
            context.backward(x.local().sum())
        grid: distag.Mesh = dtensor.init_device_mesh("cpu", (2, -1), mesh_dim_names=("dp", "tp"), worker=worker)
        made: distag.Tensor = dtensor.zeros(4, 4, device_mesh=grid, placements=[distag.Shard(0), distag.Replicate()])
        placements: tuple[Any, ...] | None = made.redistribute(placements=[distag.Replicate()] * 2).placements
        layer: nn.Linear = dtensor.parallelize_module(nn.Linear(2, 2), grid, {"": dtensor.ColwiseParallel()})
        other: nn.Linear = dtensor.fully_shard(nn.Linear(2, 2), mesh=grid)
        assert placements and layer.buffers() == other.buffers() and grid.get_coordinate() and made.full_tensor()
    return float(reduced) + float(later.result()) + box.offset[0] + (0 if maybe is None else len(spec or ""))
