"""Cases of ends: what is released, collected, closed twice, left open, forked; and reports."""
import gc
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import distag
from distag import _callbacks
from support import cases, fails, group, near, same, wait_for_child

CASES, case = cases()


def square(x):
    return x * x


def length(text):
    return len(text)


def nothing_is_left():
    gc.collect()
    assert distag.handle_count() == 0, distag.handle_report()
    same(_callbacks.count(), 0)


@case("life: everything released leaves no handle")
def no_handles(given):
    nothing_is_left()
    x = distag.tensor([1.0, 2.0], requires_grad=True)
    x.add_hook(lambda gradient: gradient)
    with group([square]) as (a, _):
        with a.context() as context:
            context.backward(a.call("b", "square", x).sum())
            distag.optim.SGD(a, [x], lr=0.1).step(context)
        reference = a.remote("b", "square", 3)
        same(reference.fetch(), 9)
    del a, _, context, reference, x
    nothing_is_left()


def train_step(given, worker):
    x = distag.tensor(given["x"], distag.float32, requires_grad=True)
    gc.collect()
    with worker.context() as context:
        gc.collect()
        loss = worker.call("b", "square", x).sum()
        gc.collect()
        context.backward(loss)
        gc.collect()
        near(context.gradient(x).tolist(), given["gradient"])


@case("life: a collector between all steps")
def collector(given):
    threshold = gc.get_threshold()
    gc.set_threshold(1)  # and at each step of its own
    try:
        with group([square]) as (a, _):
            train_step(given, a)
    finally:
        gc.set_threshold(*threshold)


@case("life: a worker shut down twice")
def shut_down_twice(given):
    with group() as (a, b):
        other = b.shutdown_async(120)
        same(a.shutdown(120)["clean"], given["clean"])
        same(a.shutdown(120)["clean"], given["clean"])
        other.result()
        a.close()
        a.close()


@case("life: use after close is an error")
def use_after_close(given):
    x = distag.tensor([1.0])
    x.close()
    x.close()
    with fails(given, distag.ClosedError):
        x + 1
    with fails(given, ValueError):
        x.shape
    with group() as (a, _):
        a.close()
        with fails(given, distag.ClosedError):
            a.call("b", "square", 1)


PROGRAM = """
import sys, threading, distag
answering = threading.Event()
@distag.function
def wait_a_little():
    answering.set()
    answering.wait(0.01)
    return distag.zeros((4,))
ab = [distag.Worker(name, rank=rank, world_size=2, rendezvous="inproc://leave") for rank, name in enumerate("ab")]
distag.wait_all([worker.start_async(120) for worker in ab])
count = threading.Semaphore(0)
futures = [ab[0].call_async("b", "wait_a_little") for _ in range(int(sys.argv[1]))]
for future in futures[::2]:
    future.add_done_callback(lambda done: count.release())
answering.wait()
"""


def leave_once(given, program):
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-B", "-c", program, str(given["calls"])], stderr=subprocess.PIPE, text=True,
                          timeout=240)
    same((done.returncode, done.stderr), (given["exit_code"], ""))
    assert time.monotonic() - began < given["seconds"]


@case("life: leaving main with calls open")
def leaving(given):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: leave_once(given, PROGRAM), range(given["runs"])))


def in_child(given, x, worker):
    """What a forked child sees: handles of the parent are dead and say so, and a new worker works."""
    with fails(given):
        x + 1
    with fails(given):
        x.shape
    with fails(given):
        worker.call("b", "square", 2)
    with group([square]) as (a, _):
        same(a.call("b", "square", 3), 9)


@case("life: a fork")
def fork(given):
    x = distag.tensor([1.0])
    with group([square]) as (a, _):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                in_child(given, x, a)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        same(wait_for_child(child), 0)
        same(a.call("b", "square", 3), 9)


@case("report: stats and reports parse")
def reports(given):
    with group([square, length]) as (a, b), a.context() as context:
        a.call("b", "square", 3)
        stats, report = a.stats(), a.report()
        same([name for name in given["stats"] if name not in stats], [])
        same([name for name in given["report"] if name not in report], [])
        same(stats["calls_made"] >= 1, True)
        a.call("b", "length", "x" * 100_000)
        there = b.stats()
        for few, many in ((a.stats()["bytes_received"], a.stats()["bytes_sent"]),
                          (there["bytes_sent"], there["bytes_received"])):
            same(0 < few < 50_000 and 100_000 < many < 150_000, True)
        same(isinstance(context.report(), dict), True)
        same(isinstance(distag.handle_report(), dict), True)
        same(sorted(context.info()), ["gradient_count", "known_count", "pass_count", "recv_count", "send_count"])
