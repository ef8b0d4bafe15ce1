"""The pattern of distag.samples.parameter_server with PyTorch's API: the same losses come out."""
import os
import sys
import threading

import torch
import torch.distributed.rpc as rpc

RATE, STEPS = 0.5, 10


def weights(rows, columns):
    return ((torch.arange(0, rows * columns, dtype=torch.float64) * 0.7).sin() * 0.1).reshape(rows, columns)


def read_rows(path, begin, end):
    with open(path) as file:
        rows = [[int(text) for text in line.split(",")] for line in list(file)[begin:end]]
    return torch.tensor([row[:64] for row in rows], dtype=torch.float64) / 16, torch.tensor([row[64] for row in rows])


class Server:
    def __init__(self):
        self.weight = weights(10, 64)
        self.lock = threading.Lock()
        self.future = torch.futures.Future()
        self.count = 0


def make_server():
    return SERVER


@rpc.functions.async_execution
def update(server, gradient):
    """Answers both trainers at once, when the second gradient is there."""
    server = server.local_value()
    with server.lock:
        server.weight -= RATE / 2 * gradient
        server.count += 1
        future = server.future
        if server.count == 2:
            server.count = 0
            server.future = torch.futures.Future()
            future.set_result(server.weight.clone())
    return future


def train(rank, path):
    x, targets = read_rows(path, 32 * rank, 32 * rank + 32)
    server = rpc.remote("server", make_server)
    weight = weights(10, 64)
    for _ in range(STEPS):
        weight = weight.detach().clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, weight), targets)
        loss.backward()
        weight = rpc.rpc_sync("server", update, args=(server, weight.grad))
        if rank == 1:
            print(f"{loss.item():.9f}", flush=True)


SERVER = Server()
if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    rpc.init_rpc(["server", "one", "two"][rank], rank=rank, world_size=3)
    if rank > 0:
        train(rank, sys.argv[1])
    rpc.shutdown()
