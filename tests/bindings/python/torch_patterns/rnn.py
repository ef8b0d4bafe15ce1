"""The pattern of distag.samples.rnn with PyTorch's API: the same losses come out."""
import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

TEXT = "distributed autograd sends gradients back through every process "
LETTERS = sorted(set(TEXT))
HIDDEN, STEPS = 8, 5


def weights(rows, columns):
    values = (torch.arange(0, rows * columns, dtype=torch.float64) * 0.7).sin() * 0.4
    return torch.nn.Parameter(values.reshape(rows, columns))


class Table(torch.nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = weights(rows, columns)


def embed(table, indices):
    return torch.nn.functional.embedding(indices, table.local_value().weight)


def decode(table, states):
    return torch.nn.functional.linear(states, table.local_value().weight)


def parameter_rrefs(table):
    return [rpc.RRef(parameter) for parameter in table.local_value().parameters()]


class Network(torch.nn.Module):
    """The recurrence is here, its tables are there."""

    def __init__(self):
        super().__init__()
        self.table = rpc.remote("server", Table, args=(len(LETTERS), HIDDEN))
        self.decoder = rpc.remote("server", Table, args=(len(LETTERS), HIDDEN))
        self.inner, self.outer = weights(HIDDEN, HIDDEN), weights(HIDDEN, HIDDEN)

    def forward(self, indices):
        inputs = rpc.rpc_sync("server", embed, args=(self.table, indices))
        state, states = torch.zeros((1, HIDDEN), dtype=torch.float64), []
        for index in range(len(inputs)):
            state = (torch.nn.functional.linear(inputs[index:index + 1], self.inner)
                     + torch.nn.functional.linear(state, self.outer)).tanh()
            states.append(state)
        return rpc.rpc_sync("server", decode, args=(self.decoder, torch.cat(states)))

    def rrefs(self):
        here = [rpc.RRef(parameter) for parameter in self.parameters()]
        return here + [rref for table in (self.table, self.decoder)
                       for rref in rpc.rpc_sync("server", parameter_rrefs, args=(table,))]


def train():
    network = Network()
    sgd = DistributedOptimizer(torch.optim.SGD, network.rrefs(), lr=0.5)
    letters = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    for _ in range(STEPS):
        with dist_autograd.context() as context_id:
            loss = torch.nn.functional.cross_entropy(network(letters[:-1]), letters[1:])
            dist_autograd.backward(context_id, [loss])
            sgd.step(context_id)
        print(f"{loss.item():.9f}", flush=True)


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    rpc.init_rpc(["trainer", "server"][rank], rank=rank, world_size=2)
    if rank == 0:
        train()
    rpc.shutdown()
