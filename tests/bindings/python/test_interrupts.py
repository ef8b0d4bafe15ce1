"""Ctrl-C in calls of a mesh that wait for another member, which does not come."""
import functools
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from ctypes import c_int64

import distag
from distag import _interrupts
from support import killed_when_late

try:
    import numpy
except ImportError:
    numpy = None

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# Rank 0 makes the call and gets the signal; rank 1 makes it once rank 0 has been interrupted, so that all of it ends.
# With "again" both have made it before.
MEMBER = """
import os, signal, sys, threading, time
import distag
from distag import _interrupts, checkpoint, nn, optim

rank, what, folder, executor = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
worker = distag.Worker(rank=rank, world_size=2, rendezvous="file://" + folder, executor=executor).start()
mesh = worker.mesh((2,), ("x",), timeout=240)
x = mesh.shard(distag.arange(0, 8, dtype=distag.float64).requires_grad_(), ("x",))
rows = mesh.shard(distag.rand(1, (4, 4)), ("x", None))
columns = mesh.shard(distag.rand(2, (4, 4)), ("x", None))
total = rows.sum()
columns.mesh  # a tensor holds the handle that it lends
context = mesh.context()
loss = (x * x).sum()
saved = os.path.join(folder, "saved")
needs = {"load": lambda: checkpoint.save(mesh, saved, {"x": x}), "clip": lambda: context.backward(loss)}
calls = {
    "save": lambda: checkpoint.save(mesh, saved, {"x": x}),
    "load": lambda: checkpoint.load(mesh, saved),
    "redistribute": lambda: x.redistribute((None,)),
    "from_local": lambda: distag.from_local(distag.ones((2,)), mesh, ("x",)),
    "mark_sharding": lambda: mesh.shard(distag.ones((4,)), ("x",), 1),
    "plan": lambda: distag.Plan(mesh, {"w": distag.ones((4,))}, {"w": ("x",)}).apply(mesh),
    "distribute_module": lambda: distag.distribute_module(nn.Linear(4, 4), mesh, {"weight": ("x", None)}),
    "backward": lambda: context.backward(loss),
    "clip": lambda: optim.SGD(worker, [x], lr=0.1).clip(context, 1.0),
    "gradients": lambda: context.gradients(),
    "step": lambda: optim.SGD(worker, [x], lr=0.1).step(context),
    "matmul": lambda: rows @ columns,
    "softmax": lambda: rows.softmax(0),
    "getitem": lambda: rows[1:3],
    "setitem": lambda: rows.__setitem__(slice(1, 3), columns[1:3]),
    "concat": lambda: distag.concat([rows, columns], 0),
    "split": lambda: rows.split([1, 3], 0),
    "apply": lambda: distag.apply("cumsum", [rows], {"dim": 0}),
    "a sum": lambda: total.redistribute(()),
    "gather": lambda: x.gather(),
    "all_reduce": lambda: mesh.all_reduce(distag.ones((2,))),
    "mesh": lambda: worker.mesh((2,), ("y",), timeout=240),
}
if what in ("gradients", "step"):  # a pass awaits its verdict: that of rank 0 comes as rank 1 makes this call
    distag.Context.settle_async = lambda self: mesh.all_reduce_async(distag.ones((2,)))
    if rank == 1:
        calls[what] = lambda: mesh.all_reduce(distag.ones((2,)))

def make_mesh():  # what rank 0 has cancelled is there for rank 1 only if it had gone out by then
    try:
        worker.mesh((2,), ("y",), timeout=10)
    except distag.DistagError as failure:
        if failure.name != "DEADLINE":
            raise

if what == "mesh" and rank == 1:
    calls[what] = make_mesh
needs.get(what, bool)()
if sys.argv[5] == "again":
    calls[what]()
if rank == 0:
    began, made = [], []  # when calls began that other members have to come to; those that another thread makes

    class Call(_interrupts.Call):
        def run(self, caller):
            made.append(self)
            began.append(time.monotonic())
            super().run(caller)

    def wait(*arguments):
        began.append(time.monotonic())
        wait_for_future(*arguments)

    def interrupt():
        while not began:
            threading.Event().wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    wait_for_future, distag.futures.wait = distag.futures.wait, wait
    _interrupts.Call = Call
    before = distag.handle_count()
    threading.Thread(target=interrupt).start()
    try:
        calls[what]()
        print("not heard", flush=True)
    except KeyboardInterrupt:
        print("heard", time.monotonic() - began[0], flush=True)
sys.stdin.readline()
if rank == 1:
    calls[what]()
    print("done", flush=True)
    sys.stdin.readline()
else:
    end = time.monotonic() + 60
    while time.monotonic() < end and not (all(call.is_over for call in made) and distag.handle_count() == before):
        threading.Event().wait(0.001)
    print(distag.handle_count() - before, flush=True)
    sys.stdin.readline()
os._exit(0)
"""


# What the binding calls although the library says "Blocks", and why Ctrl-C is heard all the same.
SHORT = {
    "distag_backward": "of a context without a worker: sends nothing",
    "distag_future_wait": "in slices",
    "distag_get_environment": "at most as long as a launcher on this machine takes",
    "distag_get_gradients": "behind distag_context_settle_async",
    "distag_mesh_create": "without a worker: sends nothing",
    "distag_optimizer_load": "without a worker: sends nothing",
    "distag_optimizer_save": "without a worker: sends nothing",
    "distag_wait_all": "in slices",
    "distag_worker_shutdown": "in slices",
    "distag_worker_start_trace": "writes a file",
    "distag_worker_stop_trace": "writes a file",
    "distag_worker_unregister": "with a timeout of 0",
    "distag_worker_wait": "in slices",
}
KINDS = re.findall(r'^    "([\w ]+)": lambda', MEMBER, re.MULTILINE)
OPS = ("matmul", "softmax", "getitem", "setitem", "concat", "split", "apply")


class Interrupts(unittest.TestCase):
    def interrupt(self, what, executor, times):
        with tempfile.TemporaryDirectory() as folder:
            given = [what, folder, executor, times]
            members = [subprocess.Popen([sys.executable, "-B", "-c", MEMBER, str(rank), *given],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(2)]
            with killed_when_late(members[0]), killed_when_late(members[1]):
                heard = members[0].stdout.readline().split()
                members[1].stdin.write("\n")  # the call of rank 0 goes on behind it
                members[1].stdin.flush()
                done = members[1].stdout.readline().strip()
                members[0].stdin.write("\n")
                members[0].stdin.flush()
                left = members[0].stdout.readline().strip()
                for member in members:
                    member.communicate("\n")
            return heard, done, left

    def check(self, executor, kinds=KINDS, times="once"):
        for what in kinds:
            with self.subTest(what, executor=executor):
                heard, done, left = self.interrupt(what, executor, times)
                self.assertEqual((heard[:1], done, left), (["heard"], "done", "0"))
                self.assertLess(float(heard[1]), 60)

    def test_is_heard_while_another_member_does_not_come(self):
        self.check("pool")

    def test_is_heard_also_with_the_host_executor(self):
        self.check("host")

    def test_is_heard_also_in_an_op_that_was_made_before(self):
        self.check("pool", OPS, "again")

    def test_an_op_that_sends_nothing_is_made_here_from_the_second_time_on(self):
        names = []

        def note(*_):
            names.append(threading.current_thread().name)
            return 0

        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://local") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                rows, columns, longer = (mesh.shard(distag.ones(shape), spec) for shape, spec in (
                    ((4, 2), ("x", None)), ((4, 2), (None, "x")), ((6, 2), ("x", None))))
                for arguments in ((rows, 0), (rows, 0), (columns, 0), (longer, 0), (rows, 1), (distag.ones((4, 2)), 0)):
                    _interrupts.call_op(note, arguments[0]._h, arguments[1])
                with worker.mesh((1,), ("x",)) as second:
                    alike = second.shard(distag.ones((4, 2)), ("x", None))
                    for tensor in (rows, rows, alike, rows, alike):
                        _interrupts.call_op(note, tensor._h, 0)
        main, other = "MainThread", "distag call"
        self.assertEqual(names, [other, main, other, other, other, main] + [other, main, other, main, main])

    def test_an_op_with_any_other_argument_is_not_taken_for_one_that_sends_nothing(self):
        names = []

        def note(*_):
            names.append(threading.current_thread().name)
            return 0

        def made(*arguments, **named):
            """The threads on which the call was made for the first time, and for the second."""
            del names[:]
            for _ in range(2):
                _interrupts.call_op(note, *arguments, **named)
            return list(names)

        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://dims") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                x, y = (mesh.shard(distag.ones((2, 2, 2)), ("x", None, None)) for _ in range(2))
                turned = mesh.shard(distag.ones((2, 2, 2)), (None, "x", None))
                pairs = [(c_int64 * 2)(*pair) for pair in ((0, 1), (1, 0), (0, 2), (1, 1))]
                calls = [((x._h, *dims), {}) for dims in ((0, 1), (1, 0), (0, 2), (2, 1), (1, 1), (0,), (0, 1, 0))]
                calls += [((x._h, pair, 2), {}) for pair in pairs]
                calls += [((x._h, y._h, 0), {}), ((x._h, turned._h, 0), {}), ((turned._h, x._h, 0), {}),
                          ((x._h, None, 0), {}), ((distag.ones((2, 2, 2))._h, x._h, 0), {})]
                calls += [((x._h,), {"attributes": attributes}) for attributes in (
                    {"dim": 0, "dim_to": 1}, {"dim": 1, "dim_to": 0}, {"dim": 0, "dim_to": 2}, {"dim": 0},
                    {"dim": 0, "shift": 1})]
                for arguments, named in calls:
                    self.assertEqual(made(*arguments, **named), ["distag call", "MainThread"])

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_an_op_with_an_array_as_attribute_is_not_taken_for_another(self):
        names = []

        def note(*_):
            names.append(threading.current_thread().name)
            return 0

        first, second = numpy.zeros(2000), numpy.zeros(2000)
        second[1000] = 1
        self.assertEqual(repr(first), repr(second))
        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://arrays") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                x = mesh.shard(distag.ones((4,)), ("x",))
                for given in (first, second, [first], [second], [1, [2.5]], [1, [2.5]]):
                    _interrupts.call_op(note, x._h, attributes={"dims": given, "mode": "sum", "shift": None})
        self.assertEqual(names, ["distag call"] * 5 + ["MainThread"])

    def test_an_op_that_fails_is_not_taken_for_one_that_sends_nothing(self):
        names = []

        def fail(*_):
            names.append(threading.current_thread().name)
            return 1

        with distag.Worker(rank=0, world_size=1, rendezvous="inproc://failing") as worker:
            with worker.mesh((1,), ("x",)) as mesh:
                x = mesh.shard(distag.ones((4,)), ("x",))
                for _ in range(2):
                    _interrupts.call_op(fail, x._h)
        self.assertEqual(names, ["distag call", "distag call"])

    def test_no_call_that_blocks_is_made_where_it_is_not_heard(self):
        with open(os.path.join(TOP, "bindings", "api.json"), encoding="utf-8") as file:
            blocking = {function["name"] for function in json.load(file)["functions"]
                        if re.search(r"\bBlocks\b", function["comment"]) and not function["name"].endswith("_async")}
        called = set()
        for path in glob.glob(os.path.join(TOP, "bindings", "python", "distag", "*.py")):
            with open(path, encoding="utf-8") as file:
                called.update(re.findall(r"\blib\.(distag_\w+)\(", file.read()))
        self.assertEqual(called & blocking, set(SHORT))

    def test_all_ops_with_an_input_are_heard(self):
        plain = [name for name, op in vars(distag.ops).items() if re.fullmatch("_[a-z].*", name)
                 and callable(op) and not isinstance(op, functools.partial)]
        self.assertEqual(plain, ["_zeros", "_ones", "_full", "_arange", "_rand", "_randn"])

    def test_other_threads_make_their_calls_themselves(self):
        names = []

        def note():
            names.append(threading.current_thread().name)
            return 0

        _interrupts.call_and_hear(note)
        other = threading.Thread(target=_interrupts.call_and_hear, args=(note,), name="other")
        other.start()
        other.join()
        self.assertEqual(names, ["distag call", "other"])

    def test_callbacks_of_the_host_executor_run_on_the_thread_that_waits(self):
        names = []

        def note():
            names.append(threading.current_thread().name)

        with tempfile.TemporaryDirectory() as folder:
            host, pool = (distag.Worker(rank=rank, world_size=2, rendezvous="file://" + folder, executor=executor,
                                        functions={"note": note}) for rank, executor in enumerate(("host", "pool")))
            distag.wait_all([host.start_async(), pool.start_async()])

            def ask():  # on the thread that makes calls for this one
                for _ in range(3):
                    pool.call(0, "note")
                names.append(threading.current_thread().name)
                return 0

            _interrupts.call_and_hear(ask)
            distag.wait_all([host.shutdown_async(), pool.shutdown_async()])
        self.assertEqual(names, ["MainThread"] * 3 + ["distag call"])

    def test_what_ctypes_refuses_is_raised_here(self):
        with self.assertRaises(ZeroDivisionError):
            _interrupts.call_and_hear(lambda: 1 // 0)


if __name__ == "__main__":
    unittest.main()
