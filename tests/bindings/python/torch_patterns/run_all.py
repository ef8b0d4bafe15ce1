"""Runs the programs beside it, each as a group of processes, and prints their numbers in JSON. All come out of this
process, because PyTorch takes seconds to load. usage: run_all.py DIGITS.CSV NAME=PROCESSES..."""
import json
import os
import runpy
import signal
import socket
import sys

import torch.distributed.rpc  # noqa: F401  once, for all processes

HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_rank(path, rank, count, port, output):
    """In a child: the program, with what it prints going to `output`."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.dup2(output, sys.stdout.fileno())
    runpy.run_path(path, run_name="__main__")
    sys.stdout.flush()


def fork_rank(path, rank, count, port, output):
    child = os.fork()
    if child:
        return child
    signal.alarm(240)  # one that hangs ends itself
    status = 1
    try:
        run_rank(path, rank, count, port, output)
        status = 0
    finally:
        os._exit(status)


def try_once(name, count):
    """The numbers that the group prints, and whether all of its processes ended well."""
    reader, writer = os.pipe()
    port = free_port()
    path = os.path.join(HERE, f"{name}.py")
    children = [fork_rank(path, rank, count, port, writer) for rank in range(count)]
    os.close(writer)
    with open(reader) as file:
        numbers = [float(number) for number in file.read().split()]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    return numbers, not any(statuses)


def run(name, count):
    """The numbers that the group prints. PyTorch's group does not come up, or go down, every time."""
    for _ in range(3):
        numbers, is_well = try_once(name, count)
        if is_well:
            return numbers
    raise SystemExit(f"{name} failed three times")


def main():
    sizes = [argument.split("=") for argument in sys.argv[2:]]
    print(json.dumps({name: run(name, int(count)) for name, count in sizes}))


if __name__ == "__main__":
    main()
