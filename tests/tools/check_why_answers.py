"""distag ps and why: what they make of the answers of workers, by sockets of this test's own that answer what it wants;
also what no worker would. usage: check_why_answers.py DISTAG"""
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from launched import DISTAG, LIMIT, equal, hide_workers_of_others

HEX = "{:016x}"
PATIENCE = 0.9  # seconds; the least of those of the command with what it asks
TRIES = 20


def look(name, rank, calls=(), waits=(), **more):
    worker = {"name": name, "rank": rank, "world_size": 4, "job": "j", "state": "started",
              "incarnation": "0x" + HEX.format(rank + 1), "process": os.getpid(), "host": "h", "age_ms": 60e3,
              "executor": "pool", "tasks_waiting": 0, "in_task": None, **more}
    return {"worker": worker, "calls_open": len(calls), "calls": list(calls), "waits": list(waits)}


def made(function, rank, age_ms, within=None):
    return {"made_here": True, "function": function, "label": "", "peer": f"w{rank}", "rank": rank, "state": "sent",
            "age_ms": age_ms, "time_left_ms": None, "within": within}


def served(function, rank, age_ms, state="running"):
    return {**made(function, rank, age_ms), "made_here": False, "state": state}


def collective(ranks, age_ms=5e3):
    return {"kind": "collective", "what": 'all_reduce of mesh "m"', "ranks": ranks, "age_ms": age_ms}


def passing(*texts):
    return {"kind": "pass", "what": "backward pass (running)", "begun_here": True, "texts": texts, "ranks": [],
            "age_ms": None}


def member(rank, report=None, silent=None, state="alive"):
    return {"name": f"w{rank}", "rank": rank, "incarnation": "0x" + HEX.format(rank + 1), "state": state,
            "silent": silent, "report": report}


class Answering:
    """A socket that answers each question by what `answers` has for its first word; None: never."""

    def __init__(self, folder, identity, answers):
        self.path = os.path.join(folder, f"{os.getpid()}.{HEX.format(identity)}")
        self.answers = answers
        self.guests = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(64)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                guest, _ = self.socket.accept()
                words = guest.recv(128).decode().split()
                answer = self.answers.get(words[0] if words else "")
                if answer is None:
                    self.guests.append(guest)
                    continue
                with contextlib.suppress(OSError):
                    guest.sendall(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
                guest.close()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        os.unlink(self.path)
        for guest in self.guests:
            guest.close()


@contextlib.contextmanager
def answering(*workers):
    folder = os.path.join(os.environ["TMPDIR"], f"distag-ps.{os.geteuid()}")
    os.mkdir(folder, 0o700)
    sockets = [Answering(folder, identity, answers) for identity, answers in workers]
    try:
        yield
    finally:
        for one in sockets:
            one.close()
        os.rmdir(folder)


def run(*arguments, tries=TRIES):
    """Again where it took so long that its patience may have ended: the machine may have stopped meanwhile."""
    for _ in range(tries):
        begun = time.monotonic()
        done = subprocess.run([DISTAG, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        if time.monotonic() - begun < PATIENCE:
            break
    equal(done.returncode, 0)
    return done.stdout.decode()


def why(*members):
    """The chains of a group of which w0 answers here."""
    reports = {one["rank"]: one["report"] for one in members}
    with answering((1, {"look": reports[0], "group": {"asked": "w0", "members": members}})):
        chains = json.loads(run("why", "--json"))["chains"]
    told = [(chain["end"], chain["culprit"], [step["worker"] for step in chain["steps"]]) for chain in chains]
    return [chain for chain in told if chain[2][0].startswith("w")]  # others of this user may run


def check_calls():
    busy = look("w1", 1, [served("f", 0, 900), made("g", 2, 800)])
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])), member(1, busy), member(2, look("w2", 2, [served("g", 1, 700)]))),
          [("runs", "w2", ["w0", "w1", "w2"])])
    # A call that began before the function is none of its waits.
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])),
              member(1, look("w1", 1, [made("g", 2, 9000), served("f", 0, 900)])),
              member(2, look("w2", 2, [served("g", 1, 8900)]))),
          [("runs", "w2", ["w1", "w2"]), ("runs", "w1", ["w0", "w1"])])
    # Nor is it one that a worker makes to itself, or to a neighbor, at nearly the same time.
    equal(why(member(0, look("w0", 0, [made("f", 0, 1000), served("f", 0, 999.9)]))), [("runs", "w0", ["w0", "w0"])])
    ring = [member(i, look(f"w{i}", i, [made("f", (i + 1) % 3, 1000), served("f", (i + 2) % 3, 999)])) for i in range(3)]
    equal({chain[0] for chain in why(*ring)}, {"runs"})
    # With `within` it is known.
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])),
              member(1, look("w1", 1, [served("f", 0, 900), made("g", 2, 800, "other"), made("h", 2, 700, "f")])),
              member(2, look("w2", 2, [served("h", 1, 600), served("g", 1, 700)])))[0], ("runs", "w2", ["w0", "w1", "w2"]))
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])), member(1, look("w1", 1))), [("under way", "w1", ["w0", "w1"])])
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])), member(1, look("w1", 1, [served("f", 0, 1, "deferred")]))),
          [("runs", "w1", ["w0", "w1"])])
    waiting = [served("f", 0, 900, "waiting")]
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])),
              member(1, look("w1", 1, [served("x", 2, 5000)] + waiting)), member(2, look("w2", 2, [made("x", 1, 5000)]))),
          [("runs", "w1", ["w2", "w1"]), ("runs", "w1", ["w0", "w1"])])
    equal(why(member(0, look("w0", 0, [made("f", 1, 1000)])),
              member(1, look("w1", 1, waiting, executor="host", in_task=False, tasks_waiting=3))),
          [("not polled", "w1", ["w0", "w1"])])


def check_those_who_are_gone_or_silent():
    call = member(0, look("w0", 0, [made("f", 1, 1000)]))
    equal(why(call, member(1, silent="no answer within 0.9 s")), [("silent", "w1", ["w0", "w1"])])
    equal(why(call, member(1, silent="lost", state="lost")), [("silent", "w1", ["w0", "w1"])])
    equal(why(call), [("gone", "rank 1", ["w0", "rank 1"])])


def check_collectives_and_passes():
    equal(why(member(0, look("w0", 0, (), [collective([1, 2])])), member(1, look("w1", 1, (), [collective([2])])),
              member(2, look("w2", 2))),
          [("has not come", "w2", ["w0", "w1", "w2"])])
    equal(why(member(0, look("w0", 0, (), [passing('worker "w1" (rank 1)')])),
              member(1, look("w1", 1, (), [passing('the gradient of the arguments of call "f" on "w2"')])),
              member(2, look("w2", 2, [served("f", 1, 3)]))), [("runs", "w2", ["w0", "w1", "w2"])])
    equal(why(member(0, look("w0", 0, (), [passing("tasks of this worker")]))), [("runs", "w0", ["w0", "w0"])])


def check_circles():
    # Each function calls the other worker, until one of them has no thread left.
    two = (member(0, look("w0", 0, [made("f", 1, 1000), served("g", 1, 800), made("h", 1, 700)])),
           member(1, look("w1", 1, [served("f", 0, 900), made("g", 0, 850), served("h", 0, 600, "waiting")])))
    equal({chain[:2] for chain in why(*two)}, {("cycle", "w0, w1")})
    # A call that began before the function is no circle.
    two = (member(0, look("w0", 0, [made("f", 1, 1000), served("g", 1, 800)])),
           member(1, look("w1", 1, [served("f", 0, 900), made("g", 0, 850)])))
    equal([chain[:2] for chain in why(*two)], [("runs", "w0")])
    equal([chain[:2] for chain in why(member(0, look("w0", 0, (), [collective([0])])))], [("cycle", "w0")])


def check_who_does_not_answer_in_time():
    seen, expected = [], [("?", "silent", "does not answer"), ("w1", "started", "")]
    with answering((1, {"look": None}), (2, {"look": look("w1", 1)})):
        for _ in range(TRIES):
            workers = json.loads(run("ps", "--json", tries=1))["workers"]
            seen = sorted((one["name"], one["state"], one["waits_for"]) for one in workers
                          if one["process"] == os.getpid())  # others of this user may run
            if seen == expected:
                break
    equal(seen, expected)


def check_answers_of_none_of_ours():
    deep = b'{"worker":' + b"[" * 1000000 + b"]" * 1000000 + b"}"
    evil = "<script>\x1b[31m\n\u202e"
    for answer in (b"", b"{", b"[]", b"\xff\xfe", b"{}", deep, b'{"worker":' + b'{"a":' * 100000,
                   {"worker": [], "calls": {}, "waits": 7}, {"worker": {"name": 5, "rank": "x", "age_ms": "now"}},
                   {"worker": {"rank": 1e300, "process": -1e300, "tasks_waiting": 1e300}, "calls_open": -1e308},
                   look("w", 0, [5, None, {"made_here": 1, "rank": 1e99, "age_ms": {}}], [[], {"ranks": ["a", 1e30, 2**70]}]),
                   look(evil, 0, [{**made(evil, 3, 1), "peer": evil}], [collective([1]), passing(evil)], job=evil)):
        for group in (answer, {"members": 5}, {"members": [5, {}, {"report": answer if isinstance(answer, dict) else 1}]}):
            with answering((1, {"look": answer, "group": group})):
                for command in ("ps", "why"):
                    text = run(command)
                    assert "\x1b" not in text and "Traceback" not in text, text
                    json.loads(run(command, "--json"))


def ours():
    """The workers that ps sees in this process: others of this user may run."""
    return [one["name"] for one in json.loads(run("ps", "--json"))["workers"] if one["process"] == os.getpid()]


def check_sockets_and_folders_of_others():
    folder = os.path.join(os.environ["TMPDIR"], f"distag-ps.{os.geteuid()}")
    with answering((1, {"look": look("w0", 0)})):
        equal(ours(), ["w0"])
    os.mkdir(folder, 0o755)
    os.chmod(folder, 0o755)  # others could have put something there
    with contextlib.closing(Answering(folder, 1, {"look": look("w0", 0)})):
        equal(ours(), [])
    os.chmod(folder, 0o700)
    for name in ("1.x", "notes", "1.0123456789abcdef.new", "x.0123456789abcdef"):
        open(os.path.join(folder, name), "w", encoding="utf-8").close()
    left = Answering(folder, 2, {})
    left.socket.shutdown(socket.SHUT_RDWR)  # as the killed leave it
    equal(ours(), [])
    assert not os.path.exists(left.path)
    equal(len(os.listdir(folder)), 4)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


def main():
    hide_workers_of_others()
    os.environ.pop("XDG_RUNTIME_DIR", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        for name, check in sorted(globals().items()):
            if name.startswith("check_"):
                check()
                print(f"ok {name}")


if __name__ == "__main__":
    sys.exit(main())
