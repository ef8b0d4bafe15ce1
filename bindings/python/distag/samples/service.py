"""A server that answers calls until it is asked to stop, by Ctrl-C, a SIGTERM or a call of "stop".

    python3 -m distag.samples.service file:///tmp/group       # serves as "service"
    python3 -m distag.samples.service file:///tmp/group ask   # joins the group, calls it, and asks it to stop"""
from __future__ import annotations

import signal
import sys
import threading

import distag

stopped = threading.Event()


@distag.function
def mean(x: distag.Tensor) -> distag.Tensor:
    return x.mean()


@distag.function
def stop() -> str:
    stopped.set()
    return "stopping"


def serve(rendezvous: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with distag.Worker("service", rank=0, world_size=distag.OPEN_WORLD, rendezvous=rendezvous) as worker:
        print(f"{worker.name} serves", flush=True)
        try:
            stopped.wait()
        except KeyboardInterrupt:
            pass
        print(f"served {worker.stats()['calls_served']} calls", flush=True)


def ask(rendezvous: str) -> None:
    with distag.Worker("client", world_size=distag.OPEN_WORLD, rendezvous=rendezvous, functions={}) as worker:
        print("mean", worker.call("service", "mean", distag.tensor([1.0, 2.0, 6.0])).item())
        print(worker.call("service", "stop"))


if __name__ == "__main__":
    ask(sys.argv[1]) if sys.argv[2:] == ["ask"] else serve(sys.argv[1])
