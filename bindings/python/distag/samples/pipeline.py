"""A model cut in two over two workers, and micro-batches that overlap. The rank is 0 for the trainer, 1 and 2 for the
shards; `pipeline.py DIGITS.CSV` prints the losses."""
# mypy: allow-untyped-defs, allow-untyped-calls
import sys

import distag
from distag import float64, nn, optim

STEPS, BATCH, PARTS = 6, 64, 4


def weights(rows, columns):
    return ((distag.arange(0, rows * columns, dtype=float64) * 0.7).sin() * 0.2).reshape(rows, columns).requires_grad_()


def read_rows(path, begin, end):
    with open(path) as file:
        rows = [[int(text) for text in line.split(",")] for line in list(file)[begin:end]]
    return distag.tensor([row[:64] for row in rows], float64) / 16, distag.tensor([row[64] for row in rows])


class Shard(nn.Module):
    def __init__(self, rows, columns, is_last):
        self.weight = weights(rows, columns)
        self.is_last = is_last

    def forward(self, x):
        y = distag.linear(x, self.weight)
        return y if self.is_last else y.relu()


@distag.function
def make_shard(rows, columns, is_last):
    return Shard(rows, columns, is_last)


@distag.function
def forward(shard, x):
    return shard.local()(x.fetch() if isinstance(x, distag.RRef) else x)


def train(worker, path):
    first = worker.remote("first", "make_shard", 32, 64, False)
    last = worker.remote("last", "make_shard", 10, 32, True)
    sgd = optim.SGD(worker, [first, last], lr=0.5)
    x, targets = read_rows(path, 0, BATCH)
    for _ in range(STEPS):
        with worker.context() as context:
            parts = [x[begin:begin + BATCH // PARTS] for begin in range(0, BATCH, BATCH // PARTS)]
            middles = [worker.remote("first", "forward", first, part) for part in parts]
            futures = [worker.call_async("last", "forward", last, middle) for middle in middles]
            loss = distag.cross_entropy(distag.concat(distag.wait_all(futures)), targets)
            context.backward(loss)
            sgd.step(context)
        print(f"{loss.item():.9f}", flush=True)


if __name__ == "__main__":
    with distag.Worker(["trainer", "first", "last"][distag.get_environment().rank]) as worker:
        if worker.rank == 0:
            train(worker, sys.argv[1])
