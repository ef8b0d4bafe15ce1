"""distag ps, why and top: hangs that are planted, and who is named. usage: check_why.py DISTAG HANGING"""
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time

from launched import DISTAG, LIMIT, Launched, equal

HANGING = sys.argv[2]
PREFIX = f"h{os.getpid()}_"


def distag(*arguments, code=0, **options):
    done = subprocess.run([DISTAG, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=LIMIT, **options)
    equal((done.returncode, done.stderr), (code, ""))
    return done.stdout


def await_told(is_right, *arguments, code=0):
    """What the command tells, once it is right: a worker that the machine has stopped does not answer in time."""
    end = time.monotonic() + LIMIT
    while True:
        done = subprocess.run([DISTAG, *arguments], capture_output=True, text=True, timeout=LIMIT)
        if done.returncode == code and is_right(done.stdout):
            return done.stdout
        assert time.monotonic() < end, (arguments, done)


def seen(command="why"):
    """Those of this test: other tests of this user run at the same time."""
    told = json.loads(distag(command, "--json"))
    told["workers"] = [one for one in told["workers"] if one["name"].startswith(PREFIX) or one["name"] == "?"]
    told["chains"] = [one for one in told.get("chains", ())
                      if any(step["worker"].startswith(PREFIX) for step in one["steps"])]
    return told


class Hang:
    """A group that hangs; once `is_there` says so of what is seen, that is what this gives."""

    def __init__(self, scenario, count, is_there):
        self.group = Launched("-n", str(count), "--grace", "0", "--", HANGING, scenario, PREFIX)
        self.is_there = is_there

    def __enter__(self):
        end = time.monotonic() + LIMIT
        while True:
            told = seen()
            if self.is_there(told):
                return told
            assert time.monotonic() < end and self.group.process.poll() is None, told

    def __exit__(self, *_):
        for worker in seen("ps")["workers"]:
            if worker["state"] == "silent" and worker["process"] > 0:
                os.kill(worker["process"], signal.SIGCONT)
        self.group.process.send_signal(signal.SIGTERM)
        self.group.end()


def name(rank):
    return f"{PREFIX}{rank}"


def ends_with(end, culprit):
    return lambda told: any((chain["end"], chain["culprit"]) == (end, culprit) for chain in told["chains"])


def steps_of(told):
    (chain,) = told["chains"]
    return [(step["worker"], step["text"]) for step in chain["steps"]]


def check_a_function_that_does_not_return():
    with Hang("function", 2, ends_with("runs", name(1))) as told:
        equal(steps_of(told), [(name(0), f'call "hold" on {name(1)}'), (name(1), 'runs "hold"')])
        equal({(one["name"], one["rank"], one["state"], one["calls"]) for one in told["workers"]},
              {(name(0), 0, "started", 1), (name(1), 1, "started", 1)})
        await_told(lambda text: f'{name(0)}: call "hold" on {name(1)} (' in text and f'-> {name(1)}: runs "hold" (' in text,
                   "why", name(0))
        text = await_told(lambda text: text.count("\n" + PREFIX) == 2 and "silent" not in text, "ps")
        rows = [line.split() for line in text.splitlines() if line.startswith(PREFIX)]
        equal([row[:3] for row in rows], [[name(0), "0", PREFIX], [name(1), "1", PREFIX]])
        equal((rows[0][-8:-3], rows[1][-5:-2]), (["1", "call", '"hold"', "on", name(1)], ["runs", '"hold"', "for"]))
        await_told(str, "why", name(0), "--longer", "0", code=3)
        await_told(str, "ps", "--longer", "0", code=3)
        distag("ps", "--longer", "86400")


def check_a_chain_of_three():
    with Hang("chain", 3, ends_with("runs", name(2))) as told:
        equal(steps_of(told), [(name(0), f'call "pass_on" on {name(1)}'), (name(1), f'call "hold" on {name(2)}'),
                               (name(2), 'runs "hold"')])
        await_told(lambda text: [chain["culprit"] for chain in json.loads(text)["chains"][:1]] == [name(2)],
                   "why", name(2), "--json")


def check_a_circle():
    with Hang("cycle", 2, ends_with("cycle", f"{name(0)}, {name(1)}")) as told:
        equal([step[0] for step in steps_of(told)], [name(0), name(1), name(0), name(0)])


def check_one_that_has_not_come():
    with Hang("missing", 3, lambda told: sum(one["calls"] for one in told["workers"]) == 4) as told:
        equal({(chain["end"], chain["culprit"]) for chain in told["chains"]}, {("has not come", name(2))})


def check_one_that_is_not_polled():
    with Hang("unpolled", 2, ends_with("not polled", name(1))) as told:
        assert "is not polled: 1 tasks wait" in steps_of(told)[-1][1], told


def check_one_that_is_stopped():
    with Hang("stopped", 2, ends_with("silent", name(1))) as told:
        assert "is stopped (state T)" in steps_of(told)[-1][1], told
        assert any(one["state"] == "silent" and "is stopped" in one["waits_for"] for one in seen("ps")["workers"])


def check_one_that_never_began():
    with Hang("alone", 2, ends_with("has not come", "rank 1")) as told:
        equal(steps_of(told)[0][0], name(0))


def socket_folder():
    return os.path.join(os.environ["TMPDIR"], f"distag-ps.{os.geteuid()}")


def processes_with_sockets():
    try:
        return {int(entry.split(".")[0]) for entry in os.listdir(socket_folder())}
    except FileNotFoundError:
        return set()  # the last one has removed it


def check_what_the_killed_leave():
    with Hang("tcp", 2, lambda told: len(told["workers"]) == 2) as told:
        status = os.lstat(socket_folder())
        equal((stat.S_IMODE(status.st_mode), status.st_uid), (0o700, os.geteuid()))
        before = {one["process"] for one in told["workers"]}
        equal(processes_with_sockets(), before)
        # What is no socket of a worker stays, whatever it is called.
        others = [os.path.join(socket_folder(), name) for name in ("99999999.0123456789abcdef", "99999999-x.conf")]
        for path in others:
            with open(path, "w", encoding="utf-8"):
                pass
        with Hang("tcp", 2, lambda told: len(told["workers"]) == 4):
            assert all(map(os.path.exists, others))
        for path in others:
            os.remove(path)
        victim = next(one for one in told["workers"] if one["rank"] == 1)
        os.kill(victim["process"], signal.SIGKILL)
        end = time.monotonic() + LIMIT
        while victim["process"] in processes_with_sockets():
            assert victim["process"] not in {one["process"] for one in seen("ps")["workers"] if one["state"] != "silent"}
            assert time.monotonic() < end
    while processes_with_sockets():  # the launcher has ended the other one
        distag("ps")
    assert not os.path.exists(socket_folder())


def check_nobody_listens_where_it_is_switched_off():
    distag("ps")  # clears what killed ones have left
    os.environ["DISTAG_PS"] = "0"
    group = Launched("-n", "1", "--", HANGING, "function", PREFIX)
    del os.environ["DISTAG_PS"]
    try:
        equal(group.lines(1), ["[0] started\n"])
        assert not os.path.exists(socket_folder())
    finally:
        group.process.send_signal(signal.SIGTERM)
        group.end()


def check_the_top_ends_with_q_and_with_its_input():
    for typed in ("q", ""):
        assert "does or waits for" in distag("top", input=typed)


def check_wrong_use():
    for wrong in (("ps", "name"), ("ps", "--longer"), ("ps", "--longer", "-1"), ("ps", "--longer", "x"), ("why", "a", "b"),
                  ("why", "--all"), ("top", "--json")):
        done = subprocess.run([DISTAG, *wrong], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        equal(done.returncode, 2)
    done = subprocess.run([DISTAG, "why", PREFIX + "nobody"], stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    equal(done.returncode, 1)
    assert "there is no worker" in done.stderr, done


if __name__ == "__main__":
    os.environ.pop("XDG_RUNTIME_DIR", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        for check in [check for check in sorted(globals()) if check.startswith("check_")]:
            globals()[check]()
            print(f"ok {check}")
