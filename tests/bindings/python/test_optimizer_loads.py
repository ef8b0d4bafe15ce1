"""Loads of checkpoints into optimizers: Ctrl-C, memory, and failures after the tensors were written."""
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
from unittest import mock

import distag
from distag import _interrupts, checkpoint, optim
from support import killed_when_late
from test_meshes import on_members

LIMIT_S = 60
MIB = 2**20


class Odd(BaseException):
    """A failure of no kind that the package knows."""


class Library:
    """The library, but one function of it runs `before` first."""

    def __init__(self, library, name, before):
        self._library = library

        def function(*arguments):
            before()
            return getattr(library, name)(*arguments)

        setattr(self, name, function)

    def __getattr__(self, name):
        return getattr(self._library, name)


def trained(value=1.0, kind=optim.Adam, worker=None):
    """A parameter and its optimizer after a step."""
    weight = distag.full(value, (4,)).requires_grad_()
    optimizer = kind(worker, [weight], lr=0.1)
    with distag.Context(worker) as context:
        context.backward((weight * weight).sum())
        optimizer.step(context)
    return weight, optimizer


def numbers(weight, optimizer):
    def plain(value):
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value.tolist() if isinstance(value, distag.Tensor) else value

    return weight.tolist(), plain(optimizer.save())


class Loads(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, True)

    def save(self, value):
        with distag.Worker(rank=0, world_size=1, rendezvous=f"inproc://save-{os.getpid()}") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                checkpoint.save(mesh, self.folder, value)

    def interrupted_at(self, number, load):
        """Runs a load that gets Ctrl-C as its read with this number begins; gives what lets that go on, and its end."""
        reads, go_on, threads = [], threading.Event(), []

        def before():
            reads.append(None)
            if len(reads) == number:
                threads.append(threading.current_thread())
                os.kill(os.getpid(), signal.SIGINT)
                go_on.wait(LIMIT_S)

        patched = mock.patch.object(checkpoint, "lib", Library(checkpoint.lib, "distag_checkpoint_load", before))
        free = len(_interrupts.Caller.free)
        with patched, self.assertRaises(KeyboardInterrupt):
            load()
            self.fail("not heard")
        self.assertEqual([thread.name for thread in threads], ["distag call"])
        return go_on, free

    def wait_until_free(self, free):
        """Waits until the thread that makes calls for the main one is free again."""
        end = threading.Event()
        for _ in range(LIMIT_S * 1000):
            if len(_interrupts.Caller.free) >= max(free, 1):
                return
            end.wait(0.001)
        self.fail("the load does not end")

    def test_after_ctrl_c_a_load_goes_on_behind_and_loads_all(self):
        for number in (1, 2):
            weight, adam = trained()
            self.save({"w": weight, "adam": adam})
            own, optimizer = trained(5.0)
            saved, before = numbers(weight, adam), numbers(own, optimizer)
            self.assertNotEqual(saved, before)
            go_on, free = self.interrupted_at(
                number, lambda: checkpoint.load(None, self.folder, {"w": own, "adam": optimizer}))
            self.assertEqual(own.tolist(), before[0])
            go_on.set()
            self.wait_until_free(free)
            self.assertEqual(numbers(own, optimizer), saved, number)

    def test_after_ctrl_c_a_load_that_fails_behind_leaves_all_as_it_was(self):
        weight, adam = trained()
        self.save({"w": weight, "adam": adam})
        own, optimizer = trained(5.0)
        before = numbers(own, optimizer)
        go_on, free = self.interrupted_at(
            2, lambda: checkpoint.load(None, self.folder, {"w": own, "adam": optimizer}))
        for name in os.listdir(self.folder):
            os.truncate(os.path.join(self.folder, name), 0)
        go_on.set()
        self.wait_until_free(free)
        self.assertEqual(numbers(own, optimizer), before)

    def test_after_ctrl_c_the_result_of_an_asynchronous_load_is_made_behind_and_can_be_asked_for_again(self):
        begun, go_on = threading.Event(), threading.Event()
        load_optimizers = checkpoint._load_optimizers

        def slowly(pairs):
            begun.set()
            os.kill(os.getpid(), signal.SIGINT)
            go_on.wait(LIMIT_S)
            load_optimizers(pairs)

        weight, adam = trained()
        self.save({"n": 1, "w": weight, "adam": adam})
        own, optimizer = trained(5.0)
        with distag.Worker(rank=0, world_size=1, rendezvous=f"inproc://load-{os.getpid()}") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                loading = checkpoint.load_async(mesh, self.folder, {"w": own, "adam": optimizer})
                with mock.patch.object(checkpoint, "_load_optimizers", slowly):
                    with self.assertRaises(KeyboardInterrupt):
                        loading.result()
                        self.fail("not heard")
                    self.assertTrue(begun.is_set())
                    go_on.set()
                    self.assertEqual(loading.result()["n"], 1)
        self.assertEqual(numbers(own, optimizer), numbers(weight, adam))

    def test_after_ctrl_c_where_there_is_no_thread_the_result_is_made_when_it_is_asked_for_again(self):
        load_optimizers = checkpoint._load_optimizers

        def late(pairs):
            load_optimizers(pairs)
            raise KeyboardInterrupt

        with distag.Worker(rank=0, world_size=1, rendezvous=f"inproc://alone-{os.getpid()}") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                for is_elsewhere in (False, True):  # True: the old elements of the tensors are kept
                    weight, adam = trained()
                    checkpoint.save(mesh, self.folder, {"n": 1, "w": weight, "adam": adam})
                    own, optimizer = trained(5.0)
                    before = numbers(own, optimizer)[1]
                    with mock.patch.object(checkpoint, "_is_elsewhere", lambda into: is_elsewhere):
                        loading = checkpoint.load_async(mesh, self.folder, {"w": own, "adam": optimizer})
                    with mock.patch.object(_interrupts.Caller, "take", lambda: None):
                        with mock.patch.object(checkpoint, "_load_optimizers", late):
                            with self.assertRaises(KeyboardInterrupt):
                                loading.result()
                        self.assertEqual(numbers(own, optimizer)[1], before)
                        self.assertEqual(loading.result()["n"], 1)
                    self.assertEqual(numbers(own, optimizer), numbers(weight, adam))
                    self.assertEqual(loading.result()["n"], 1)

    def test_a_failure_is_let_go_after_it_was_raised(self):
        weight, adam = trained()
        self.save({"w": weight, "adam": adam})
        own, optimizer = trained(5.0)
        self.addCleanup(gc.enable)
        gc.disable()
        with distag.Worker(rank=0, world_size=1, rendezvous=f"inproc://fail-{os.getpid()}") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                for kind in (distag.UsageError, Odd):
                    loading = checkpoint.load_async(mesh, self.folder, {"w": own, "adam": optimizer})
                    made = []

                    def fail(pairs):
                        failure = kind("too late")
                        made.append(weakref.ref(failure))
                        try:
                            raise failure
                        finally:
                            del failure  # whose traceback holds this frame

                    with mock.patch.object(checkpoint, "_load_optimizers", fail):
                        for _ in range(2):
                            try:
                                loading.result()
                                self.fail("no failure")
                            except (distag.DistagError, Odd) as failure:
                                self.assertIn("too late", str(failure))
                                made.append(weakref.ref(failure))
                    self.assertEqual([reference() for reference in made], [None] * 3, kind)

    def test_a_load_takes_no_second_copy_of_the_tensors(self):
        count, size = 8, 8 * MIB
        self.save({"w": [distag.full(2.0, (size // 4,)) for _ in range(count)], "adam": trained()[1]})
        for how in ("load(mesh", "load_async(mesh"):
            end = ".result()" if "async" in how else ""
            child = subprocess.Popen([sys.executable, "-B", "-c", rf"""
import re, sys
import distag
from distag import checkpoint, optim

def peak():
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1])

with distag.Worker(rank=0, world_size=1, rendezvous="inproc://memory") as worker:
    with worker.mesh((1,), ("x",)) as mesh:
        weights = [distag.full(1.0, ({size // 4},)) for _ in range({count})]
        adam = optim.Adam(None, [distag.ones((4,))])
        checkpoint.load(mesh, sys.argv[1])
        before = peak()
        checkpoint.{how}, sys.argv[1], {{"w": weights, "adam": adam}}){end}
        print(peak() - before, sum(weight.mean().item() for weight in weights), adam.save()["parameters"][0][0]["step"])
""", self.folder], stdout=subprocess.PIPE, text=True)
            with killed_when_late(child), child.stdout:
                grown, total, step = child.stdout.read().split()
            self.assertEqual((child.wait(), float(total), int(step)), (0, 2.0 * count, 1))
            print(f"\nfigure: {how.split('(')[0]}_grows_by_mib {int(grown) / MIB:.1f} of {count * size // MIB}")
            self.assertLess(int(grown), 2 * size)


if __name__ == "__main__":
    unittest.main()
