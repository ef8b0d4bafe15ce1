"""The examples of PyTorch/XLA's pages about SPMD, in their order, with its names where distag has them.

    distag run -n 4 python3 samples/sharded.py

Each of the four workers runs this program; loaders and automatic plans are left out."""
import distag
from distag import nn, optim

worker = distag.Worker().start()  # rank, size and address come from distag run


def show(*words):
    if worker.rank == 0:
        print(*words, flush=True)


# Device mesh, partition spec and the shape of the tensor define the shard of each member.
num_devices = worker.world_size
mesh = worker.mesh((num_devices, 1), ("data", "model"))
t = distag.randn(1, (8, 4))
distag.mark_sharding(t, mesh, ("data", "model"))  # each member holds a quarter of the rows
show("1. a mesh and a sharded tensor:", mesh.shape, t)

# A sharded tensor is a tensor: ops take it, and say where their result lies.
show("2. in any op:", (t + t).tanh().spec, "then", t.sum(dims=0).spec)
show("3. the local shard:", list(t.local().shape), "of the whole", list(t.gather().shape))

# Sharding over both axes, and both axes on one dim.
grid = worker.mesh((2, num_devices // 2), ("x", "y"))
for spec in (("x", "y"), (("x", "y"), None), (None, None), "{devices=[2,2]<=[4]}"):
    show("4. mesh partition:", grid.spec(spec, 2), grid.box(spec, (8, 4)).extent)

# A virtual device: the tensor has no elements until it is marked, and then each member makes its own part.
big = distag.deferred((100_000, 88), init="randn", seed=3)
show("5. deferred:", big)
distag.distribute_tensor(big, mesh, [distag.Shard(0)])
show("5. marked:", big)

# Several hosts: the inner grid lies within a host, the outer one over hosts; here granules stand for these.
hybrid = distag.HybridMesh(worker, (1, 2, 1), (2, 1, 1), ("data", "fsdp", "tensor"), granules=[0, 0, 1, 1])
show("6. hybrid mesh:", hybrid.shape, hybrid.granules)

# A model whose parameters are distributed; its batch is cut along the other axis.
model = nn.Sequential(nn.Linear(8, 16, seed=1), distag.relu, nn.Linear(16, 4, seed=2))
first, relu, second = model.parts
for parameter, spec in ((first.weight, ("y", None)), (first.bias, ("y",)), (second.weight, (None, "y")),
                        (second.bias, (None,))):
    distag.mark_sharding(parameter, grid, spec)
inputs = distag.mark_sharding(distag.randn(4, (32, 8)), grid, ("x", None))
labels = distag.mark_sharding(distag.arange(0, 32).mul_scalar(0.125).cast(distag.int64), grid, ("x",))
adam = optim.Adam(worker, [model], lr=0.05)
losses = []
for _ in range(20):
    with grid.context() as context:
        loss = distag.cross_entropy(model(inputs), labels)
        context.backward(loss)
        adam.step(context)
        losses.append(loss.gather().item())
show("7. training:", f"loss {losses[0]:.3f}, then {losses[-1]:.3f}")

# An activation is annotated by op, as by dynamo_mark_sharding: device ids, sizes and names of the mesh, spec.
annotated = distag.apply("mark_sharding", [first(inputs)], {
    "device_ids": grid.ranks, "mesh_shape": [2, 2], "axis_names": "('x', 'y')", "partition_spec": "('x', 'y')"})[0]
show("8. an annotated activation:", annotated.spec)

# Which member has which part.
show("9. pictures:\n" + distag.visualize_tensor_sharding(annotated, label="CPU"))
show(distag.visualize_sharding("{devices=[2,2]0,1,2,3}"))
worker.shutdown()
