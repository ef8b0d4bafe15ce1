"""Ctrl-C in calls of a mesh that wait for another member, which does not come."""
import subprocess
import sys
import tempfile
import threading
import unittest

from distag import _interrupts
from support import killed_when_late

# Rank 0 makes the call and gets the signal; rank 1 makes it once rank 0 has been interrupted, so that all of it ends.
MEMBER = """
import os, signal, sys, threading, time
import distag
from distag import checkpoint, optim

rank, what, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
worker = distag.Worker(rank=rank, world_size=2, rendezvous="file://" + folder).start()
mesh = worker.mesh((2,), ("x",), timeout=240)
x = mesh.shard(distag.arange(0, 8, dtype=distag.float64).requires_grad_(), ("x",))
context = mesh.context() if what == "backward" else None
loss = (x * x).sum() if what == "backward" else None
calls = {
    "save": lambda: checkpoint.save(mesh, os.path.join(folder, "saved"), {"x": x}),
    "load": lambda: checkpoint.load(mesh, os.path.join(folder, "saved")),
    "redistribute": lambda: x.redistribute((None,)),
    "from_local": lambda: distag.from_local(distag.ones((2,)), mesh, ("x",)),
    "mark_sharding": lambda: mesh.shard(distag.ones((4,)), ("x",), 1),
    "backward": lambda: context.backward(loss),
}
if what == "load":
    calls["save"]()
if rank == 0:
    def interrupt():
        while all(thread.name != "distag call" for thread in threading.enumerate()):
            threading.Event().wait(0.001)
        began.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    began = []
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
os._exit(0)
"""


class Interrupts(unittest.TestCase):
    def interrupt(self, what):
        with tempfile.TemporaryDirectory() as folder:
            members = [subprocess.Popen([sys.executable, "-B", "-c", MEMBER, str(rank), what, folder], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(2)]
            with killed_when_late(members[0]), killed_when_late(members[1]):
                heard = members[0].stdout.readline().split()
                members[1].stdin.write("\n")  # the call of rank 0 goes on behind it
                members[1].stdin.flush()
                done = members[1].stdout.readline().strip()
                for member in members:
                    member.communicate("\n\n")
            return heard, done

    def test_is_heard_while_another_member_does_not_come(self):
        for what in ("save", "load", "redistribute", "from_local", "mark_sharding", "backward"):
            with self.subTest(what):
                heard, done = self.interrupt(what)
                self.assertEqual((heard[0], done), ("heard", "done"))
                self.assertLess(float(heard[1]), 60)

    def test_other_threads_and_the_host_executor_make_their_calls_themselves(self):
        names = []

        def note():
            names.append(threading.current_thread().name)
            return 0

        _interrupts.call_and_hear(note)
        other = threading.Thread(target=_interrupts.call_and_hear, args=(note,), name="other")
        other.start()
        other.join()
        used, _interrupts.HostExecutor.is_used = _interrupts.HostExecutor.is_used, True
        try:
            _interrupts.call_and_hear(note)
        finally:
            _interrupts.HostExecutor.is_used = used
        first = "MainThread" if used else "distag call"
        self.assertEqual(names, [first, "other", "MainThread"])

    def test_what_ctypes_refuses_is_raised_here(self):
        with self.assertRaises(ZeroDivisionError):
            _interrupts.call_and_hear(lambda: 1 // 0)


if __name__ == "__main__":
    unittest.main()
