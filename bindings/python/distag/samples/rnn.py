"""A recurrent network whose embedding and decoder live with a server, behind rrefs. The rank is 0 for the trainer, 1 for
the server; `rnn.py` prints the losses."""
# mypy: allow-untyped-defs, allow-untyped-calls

import distag
from distag import float64, nn, optim

TEXT = "distributed autograd sends gradients back through every process "
LETTERS = sorted(set(TEXT))
HIDDEN, STEPS = 8, 5


def weights(rows, columns):
    return ((distag.arange(0, rows * columns, dtype=float64) * 0.7).sin() * 0.4).reshape(rows, columns).requires_grad_()


class Table(nn.Module):
    def __init__(self, rows, columns):
        self.weight = weights(rows, columns)


@distag.function
def make_table(rows, columns):
    return Table(rows, columns)


@distag.function
def embed(table, indices):
    return distag.embedding(indices, table.local().weight)


@distag.function
def decode(table, states):
    return distag.linear(states, table.local().weight)


class Network(nn.Module):
    """The recurrence is here, its tables are there."""

    def __init__(self, worker):
        self.worker = worker
        self.table = worker.remote("server", "make_table", len(LETTERS), HIDDEN)
        self.decoder = worker.remote("server", "make_table", len(LETTERS), HIDDEN)
        self.inner, self.outer = weights(HIDDEN, HIDDEN), weights(HIDDEN, HIDDEN)

    def forward(self, indices):
        inputs = self.worker.call("server", "embed", self.table, indices)
        state, states = distag.zeros((1, HIDDEN), float64), []
        for index in range(len(inputs)):
            state = (distag.linear(inputs[index:index + 1], self.inner) + distag.linear(state, self.outer)).tanh()
            states.append(state)
        return self.worker.call("server", "decode", self.decoder, distag.concat(states))


def train(worker):
    network = Network(worker)
    sgd = optim.SGD(worker, [network, network.table, network.decoder], lr=0.5)
    letters = distag.tensor([LETTERS.index(letter) for letter in TEXT])
    for _ in range(STEPS):
        with worker.context() as context:
            loss = distag.cross_entropy(network(letters[:-1]), letters[1:])
            context.backward(loss)
            sgd.step(context)
        print(f"{loss.item():.9f}", flush=True)


if __name__ == "__main__":
    with distag.Worker(["trainer", "server"][distag.get_environment().rank]) as worker:
        if worker.rank == 0:
            train(worker)
