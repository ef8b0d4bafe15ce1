"""Trains a classifier of hand-written digits whose layers live in three processes.

    python3 -m distag.samples.digits [--epochs N] [--data DIGITS.CSV]

Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each, and may as well be
programs in C (samples/04_digits.c). Without a launcher this starts the other two processes itself."""
from __future__ import annotations

import argparse
import array
import math
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

import distag
from distag import optim

NAMES = ("trainer", "middle", "last")
SHAPES = ((16, 1, 3, 3), (64, 256), (10, 64))
FAN_IN = (9, 256, 64)
BATCH = 32
RATE = 0.2  # of the first epoch; falls to 0 in a straight line


class Layer:
    """16 filters of 3 x 3; 256 to 64; 64 to 10."""

    def __init__(self, index: int) -> None:
        self.index = index
        random = distag.randn(100 + index, SHAPES[index])  # scaled by the fan-in (He et al. 2015)
        self.weight = (random * math.sqrt(2 / FAN_IN[index])).detach().requires_grad_()
        self.bias = distag.zeros(SHAPES[index][0]).requires_grad_()

    def forward(self, x: distag.Tensor) -> distag.Tensor:
        if self.index == 0:
            filtered = distag.conv2d(x.reshape(-1, 1, 8, 8), self.weight, self.bias, 1, 1)
            return filtered.relu().max_pool2d(2).reshape(-1, 256)
        y = distag.linear(x, self.weight, self.bias)
        return y if self.index == 2 else y.relu()

    def parameters(self) -> list[distag.Tensor]:
        return [self.weight, self.bias]


class Images:
    """Rows of pixels, and their classes."""

    def __init__(self) -> None:
        self.pixels: list[bytes] = []
        self.classes: list[int] = []

    def add(self, line: str) -> None:
        *pixels, digit = (int(text) for text in line.split(","))
        self.pixels.append(array.array("f", [pixel / 16 for pixel in pixels]).tobytes())
        self.classes.append(digit)

    def shuffle(self, seed: int) -> None:
        """The same order on every run: a linear congruential generator (Knuth, MMIX)."""
        for i in range(len(self.classes) - 1, 0, -1):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            j = (seed >> 33) % (i + 1)
            for column in (self.pixels, self.classes):
                column[i], column[j] = column[j], column[i]  # type: ignore[index]

    def batch(self, begin: int, end: int) -> tuple[distag.Tensor, distag.Tensor]:
        rows = memoryview(b"".join(self.pixels[begin:end])).cast("f")
        return distag.tensor(rows).reshape(-1, 64), distag.tensor(self.classes[begin:end])


def read_images(path: str) -> tuple[Images, Images]:
    """Those to train with, and every fifth line, which is held out."""
    train, held_out = Images(), Images()
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            (held_out if number % 5 == 0 else train).add(line)
    return train, held_out


def data_path() -> str:
    """The data that comes with the package, or the repository's."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(here, "digits.csv"), os.path.join(here, *[".."] * 4, "samples", "data", "digits.csv"),
              "/usr/share/doc/distag-doc/examples/data/digits.csv"]
    for path in places:
        if os.path.exists(path):
            return path
    sys.exit("digits.csv is not beside this sample: take samples/data/digits.csv of distag's sources, or install "
             "distag-doc, and name the file by --data")


class Trainer:
    """The steps of rank 0."""

    def __init__(self, worker: distag.Worker, layer: Layer) -> None:
        self.worker = worker
        self.layer = layer
        others = [worker.remote(name, "parameters") for name in NAMES[1:]]
        self.sgd = optim.SGD(worker, [*layer.parameters(), *others])
        self.steps = 0

    def logits(self, x: distag.Tensor) -> distag.Tensor:
        """Through all three processes; without a context nothing is recorded."""
        middle = self.worker.call("middle", "forward", self.layer.forward(x))
        logits: distag.Tensor = self.worker.call("last", "forward", middle)
        return logits

    def step(self, x: distag.Tensor, targets: distag.Tensor) -> float:
        """One batch: forward, backward, step. Gives the loss."""
        with self.worker.context() as context:
            loss = distag.cross_entropy(self.logits(x), targets)
            context.backward(loss)
            self.sgd.step(context)
        self.steps += 1
        return float(loss)

    def epoch(self, images: Images) -> float:
        losses = [self.step(*images.batch(begin, begin + BATCH)) for begin in range(0, len(images.classes), BATCH)]
        return sum(losses) / len(losses)

    def accuracy(self, images: Images) -> float:
        x, targets = images.batch(0, len(images.classes))
        return float(self.logits(x).argmax(1).eq(targets).cast(distag.float32).mean())


def show(epoch: int, epochs: int, loss: float, accuracy: float) -> None:
    """One line that moves on a terminal, a line per epoch in a log."""
    moves = sys.stdout.isatty()
    print(f"{chr(13) if moves else ''}epoch {epoch:2} of {epochs}   loss {loss:.4f}   held-out accuracy {accuracy:.4f}",
          end="" if moves and epoch < epochs else "\n", flush=True)


def train(trainer: Trainer, path: str, epochs: int) -> None:
    images, held_out = read_images(path)
    seconds = accuracy = 0.0
    for epoch in range(1, epochs + 1):
        images.shuffle(epoch)
        trainer.sgd.set(lr=RATE * (epochs - epoch + 1) / epochs)
        begin = time.monotonic()
        loss = trainer.epoch(images)
        seconds += time.monotonic() - begin
        accuracy = trainer.accuracy(held_out)
        show(epoch, epochs, loss, accuracy)
    print(f"held-out accuracy {accuracy:.4f} on {len(held_out.classes)} images, after {trainer.steps} steps over "
          f"{len(NAMES)} processes")
    print(f"{trainer.steps / seconds:.0f} steps per second")


def work(rank: int, path: str, epochs: int, rendezvous: str) -> None:
    """What each of the three processes does."""
    layer = Layer(rank)
    offers: dict[str, Callable[..., Any]] = {"forward": layer.forward, "parameters": layer.parameters}
    size = 0 if rendezvous == "env://" else len(NAMES)
    with distag.Worker(NAMES[rank], rank=rank, world_size=size, rendezvous=rendezvous, functions=offers) as worker:
        if rank == 0:
            train(Trainer(worker, layer), path, epochs)


def start_all(arguments: list[str], path: str, epochs: int) -> None:
    """Is the trainer, and starts the other two."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "distag.samples.digits", "--rendezvous", f"file://{folder}", *arguments]
        others = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in (1, 2)]
        try:
            work(0, path, epochs, f"file://{folder}")
        finally:
            for other in others:
                other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="distag.samples.digits", description="Trains digits over three processes.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--data", help="digits.csv")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rendezvous", default="env://", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes that are started
    rank = options.rank
    if rank is None:
        try:
            rank = distag.get_environment().rank
        except distag.UsageError:
            rank = -1
    if rank < 0:
        start_all(sys.argv[1:], options.data or data_path(), options.epochs)
    else:
        work(rank, options.data or data_path(), options.epochs, options.rendezvous)


if __name__ == "__main__":
    main()
