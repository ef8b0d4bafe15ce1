"""What the cases share: how they are named, groups of workers in this process, and comparisons."""
import contextlib
import itertools
import json
import math
import os
import signal
import threading

import distag

_jobs = itertools.count()


def cases():
    """A table of cases, and the decorator that adds to it."""
    table = {}

    def case(name):
        def add(function):
            table[name] = function
            return function
        return add

    return table, case


@contextlib.contextmanager
def group(functions=None, names=("a", "b"), **options):
    """Workers of one group in this process, started, and shut down side by side."""
    job = f"job{os.getpid()}-{next(_jobs)}"
    workers = [distag.Worker(name, rank=rank, world_size=len(names), rendezvous=f"inproc://{job}", job=job,
                             functions=functions or {}, **options) for rank, name in enumerate(names)]
    try:
        distag.wait_all([worker.start_async(120) for worker in workers])
        yield workers
        distag.wait_all([worker.shutdown_async(120) for worker in workers if not worker.is_closed])
    finally:
        for worker in workers:
            worker.close()


@contextlib.contextmanager
def killed_when_late(child, seconds=240):
    """Kills a process of subprocess that the block is still waiting for after a time."""
    timer = threading.Timer(seconds, child.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def wait_for_child(child, seconds=240):
    """The status of a forked child; one that hangs is killed, which is its status then."""
    timer = threading.Timer(seconds, os.kill, (child, signal.SIGKILL))
    timer.start()
    try:
        return os.waitpid(child, 0)[1]
    finally:
        timer.cancel()
        timer.join()


def near(found, expected, absolute=0.0, relative=0.0):
    """Asserts that nested lists of numbers are equal within a tolerance."""
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected):
            near(one, other, absolute, relative)
        return
    expected = float(expected) if not isinstance(expected, bool) else expected
    assert math.isclose(found, expected, rel_tol=relative, abs_tol=absolute), (found, expected)


def same(found, expected):
    """Asserts equality, types included."""
    assert found == expected and type(found) is type(expected), (found, expected)


@contextlib.contextmanager
def fails(case, kind=distag.DistagError):
    """Asserts that the block fails as the case says."""
    try:
        yield
    except kind as failure:
        assert failure.code == case["status"], failure
        for part in case.get("message_has", []):
            assert part in failure.message, failure
        for name in ("origin_rank", "may_have_run"):
            assert name not in case or getattr(failure, name) == case[name], (name, failure)
    else:
        raise AssertionError("nothing failed")


def lines(case):
    """The cases of a file of reference numbers."""
    with open(os.path.join(case["repository"], case["file"]), encoding="utf-8") as file:
        text = file.read()
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]


def tensor_of(numbers, requires_grad=False):
    """A tensor of reference numbers: {"dtype", "shape", "data"}, or None."""
    if numbers is None:
        return None
    dtype = {"float64": distag.float64, "float32": distag.float32, "int64": distag.int64,
             "bool": distag.bool_}[numbers["dtype"]]
    made = distag.tensor(numbers["data"], dtype).reshape(numbers["shape"])
    return made.requires_grad_() if requires_grad and dtype is distag.float64 else made
