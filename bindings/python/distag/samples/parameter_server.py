"""A parameter server that steps once both trainers have sent their gradient. The rank is 0 for the server, 1 and 2 for
trainers; `parameter_server.py DIGITS.CSV` prints the losses of trainer 1."""
# mypy: allow-untyped-defs, allow-untyped-calls
import sys
import threading

import distag
from distag import float64

RATE, STEPS = 0.5, 10


def weights(rows, columns):
    return ((distag.arange(0, rows * columns, dtype=float64) * 0.7).sin() * 0.1).reshape(rows, columns)


def read_rows(path, begin, end):
    with open(path) as file:
        rows = [[int(text) for text in line.split(",")] for line in list(file)[begin:end]]
    return distag.tensor([row[:64] for row in rows], float64) / 16, distag.tensor([row[64] for row in rows])


class Server:
    def __init__(self):
        self.weight = weights(10, 64)
        self.lock = threading.Lock()
        self.waiting = []


@distag.function
def make_server():
    return SERVER


@distag.function
def update(server, gradient):
    """Answers both trainers at once, when the second gradient is there."""
    server = server.local()
    with server.lock:
        server.weight.add_scaled(gradient, -RATE / 2)
        server.waiting.append(distag.current_call().defer())
        if len(server.waiting) == 2:
            for reply in server.waiting:
                reply.finish(server.weight)
            server.waiting = []


def train(worker, path):
    x, targets = read_rows(path, 32 * worker.rank, 32 * worker.rank + 32)
    server = worker.remote("server", "make_server")
    weight = weights(10, 64)
    for _ in range(STEPS):
        weight.requires_grad = True
        loss = distag.cross_entropy(distag.linear(x, weight), targets)
        with distag.Context() as context:
            context.backward(loss)
            weight = worker.call("server", "update", server, context.gradient(weight), context=None)
        if worker.rank == 1:
            print(f"{loss.item():.9f}", flush=True)


SERVER = Server()
if __name__ == "__main__":
    name = ["server", "one", "two"][distag.get_environment().rank]
    with distag.Worker(name) as worker:
        if worker.rank > 0:
            train(worker, sys.argv[1])
