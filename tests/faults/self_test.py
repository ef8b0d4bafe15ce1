"""A run of the matrix that fails has a reason, whatever its processes do; who was stopped goes on; and a summary of
another run than the whole one is refused.

Planted are programs in the place of faults_participant."""
import os
import subprocess
import sys
import tempfile
import types

from cells import Cell, all_cells, sample, traits
from check_written import complaints_of_kinds, complaints_of_summary
from matrix import summary
from processes import Member

HERE = os.path.dirname(os.path.abspath(__file__))
CELL = "cold: A Hello sent 1 | cut"
LIMIT = 120  # seconds, against hanging


def write_program(folder, text):
    path = os.path.join(folder, "program")
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o700)) as file:
        file.write("#!/bin/sh\n" + text + "\n")
    return path


def begin(program):
    """A run that leaves what it leaves in the folder of the program."""
    return subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "matrix.py"), program, CELL],
                            env={**os.environ, "TMPDIR": os.path.dirname(program)},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def expect_reasons(text, reasons):
    """Of a run whose processes are that program, or cannot be started."""
    with tempfile.TemporaryDirectory() as folder:
        with begin(write_program(folder, text) if text else os.path.join(folder, "none")) as running:
            said = running.communicate(timeout=LIMIT)[0]
        assert running.returncode == 1, said
        for reason in (f" s {CELL} | ", "1 cells: 1 FAILED", *reasons):
            assert reason in said, (reason, said)


def expect_reason_of_end():
    """Who is told to end says which cells ran, before it waits for them."""
    with tempfile.TemporaryDirectory() as folder:
        waits = os.path.join(folder, "waits")
        os.mkfifo(waits)
        here = os.open(waits, os.O_RDWR)
        with begin(write_program(folder, f"echo >{waits}; cat >/dev/null")) as running:
            os.read(here, 1)  # a process of the cell is there
            running.terminate()
            said = running.stdout.readline() + running.stdout.readline()
            running.kill()
        os.close(here)
        assert "told to end" in said and CELL in said, said


def expect_to_go_on():
    """It stops itself long after it has said so: a signal to go on that came at its time would be lost."""
    with tempfile.TemporaryDirectory() as folder:
        program = write_program(folder, """echo '{"fault": "stop", "at": 1}'; sleep 1; kill -STOP $$; echo '"on"'; read _""")
        group = types.SimpleNamespace(cell=Cell(1, "call", "A Call sent 1", "short stop", "lane"), program=program,
                                      rendezvous="", environment=None, etcd=None)
        member = Member(group, "A")
        assert member.hear() == "on"
        member.process.stdin.close()
        member.close()


def expect_samples_of_everything():
    cells = all_cells(False)
    for stride in (37, len(cells)):
        some = sample(cells, stride)
        assert set().union(*map(traits, some)) == set().union(*map(traits, cells))
        assert len(some) == len(set(map(str, some))) < len(cells) / 10, len(some)


def summary_of(cells, failed=None, kill_ms=20.0):
    results = [(cell, "FAILED" if cell is failed else "right result") for cell in cells]
    return summary(results, {f"kill to named error by {engine}": [kill_ms / 1e3] for engine in ("libzmq", "zmtp")})


def expect_refusals_of_summaries():
    cells = all_cells(False)
    assert not complaints_of_summary(summary_of(cells), cells), complaints_of_summary(summary_of(cells), cells)
    for text, reason in ((summary_of(cells[1:]), "is not of the"), (summary_of(cells, cells[-1]), "without a failure"),
                         (summary_of(cells, kill_ms=51.0), "more than 50"),
                         (summary_of(cells) + "one more\n" * 30, "more than 30")):
        complaints = complaints_of_summary(text, cells)
        assert any(reason in complaint for complaint in complaints), (reason, complaints)
    kinds = " ,\n".join(sorted({cell.kind for cell in cells if cell.kind.isalpha()}))
    assert not complaints_of_kinds(f"union Body {{ {kinds} }}", cells)
    assert complaints_of_kinds(f"union Body {{ {kinds}, Another }}", cells) == ["no cell strikes at a message Another"]


expect_reasons("exit 3", ["a process has died"])
expect_reasons("echo nonsense; echo wrong >&2", ["A says: no answer: nonsense", "wrong"])
expect_reasons(None, ["FileNotFoundError"])
expect_reason_of_end()
expect_to_go_on()
expect_samples_of_everything()
expect_refusals_of_summaries()
print("ok")
