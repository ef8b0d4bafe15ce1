"""The pattern of distag.samples.pipeline with PyTorch's API: the same losses come out."""
import os
import sys

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

STEPS, BATCH, PARTS = 6, 64, 4


def weights(rows, columns):
    values = (torch.arange(0, rows * columns, dtype=torch.float64) * 0.7).sin() * 0.2
    return torch.nn.Parameter(values.reshape(rows, columns))


def read_rows(path, begin, end):
    with open(path) as file:
        rows = [[int(text) for text in line.split(",")] for line in list(file)[begin:end]]
    return torch.tensor([row[:64] for row in rows], dtype=torch.float64) / 16, torch.tensor([row[64] for row in rows])


class Shard(torch.nn.Module):
    def __init__(self, rows, columns, is_last):
        super().__init__()
        self.weight = weights(rows, columns)
        self.is_last = is_last

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.weight)
        return y if self.is_last else y.relu()


def parameter_rrefs(shard):
    return [rpc.RRef(parameter) for parameter in shard.local_value().parameters()]


def forward(shard, x):
    return shard.local_value()(x.to_here() if isinstance(x, rpc.PyRRef) else x)


def train(path):
    first = rpc.remote("first", Shard, args=(32, 64, False))
    last = rpc.remote("last", Shard, args=(10, 32, True))
    parameters = [rref for name, shard in (("first", first), ("last", last))
                  for rref in rpc.rpc_sync(name, parameter_rrefs, args=(shard,))]
    sgd = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.5)
    x, targets = read_rows(path, 0, BATCH)
    for _ in range(STEPS):
        with dist_autograd.context() as context_id:
            parts = [x[begin:begin + BATCH // PARTS] for begin in range(0, BATCH, BATCH // PARTS)]
            middles = [rpc.remote("first", forward, args=(first, part)) for part in parts]
            futures = [rpc.rpc_async("last", forward, args=(last, middle)) for middle in middles]
            logits = torch.cat(torch.futures.wait_all(futures))
            loss = torch.nn.functional.cross_entropy(logits, targets)
            dist_autograd.backward(context_id, [loss])
            sgd.step(context_id)
        print(f"{loss.item():.9f}", flush=True)


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    rpc.init_rpc(["trainer", "first", "last"][rank], rank=rank, world_size=3)
    if rank == 0:
        train(sys.argv[1])
    rpc.shutdown()
