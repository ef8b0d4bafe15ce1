"""A group that mpirun starts meets by PMIx, and says what is wrong where it cannot. usage: check_mpirun.py MEMBER"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

MEMBER = sys.argv[1]
RANKS = 3
LIMIT = 100  # seconds, only against hanging
TRIES = 3
FOREIGN = re.compile(r"(DISTAG_(?!CI|LIBRARY)|MASTER_|SLURM_|PMIX_|OMPI_|TORCHELASTIC_|GROUP_)|"
                     r"(LOCAL_)?(RANK|WORLD_SIZE)$|JOB_COMPLETION_INDEX$")
CLEAN = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}


def mpirun(*arguments, **environment):
    with tempfile.TemporaryDirectory() as folder:  # of its daemon
        return run_mpirun(arguments, {**environment, "TMPDIR": folder})


def run_mpirun(arguments, environment):
    """Once more where mpirun itself crashed or hung: Open MPI 4.1.4 does at times, in its PMIx_server_finalize, when a
    process of the job has failed."""
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(RANKS), MEMBER, *arguments]
    for _ in range(TRIES):
        running = subprocess.Popen(command, env={**CLEAN, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        try:
            output, told = running.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            output, told = running.communicate()
        if running.returncode >= 0:
            return running.returncode, sorted(output.splitlines()), told
        print(f"mpirun ended by signal {-running.returncode}:\n{output}{told}", flush=True)
    raise AssertionError(f"mpirun crashed or hung {TRIES} times")


def place(rank):
    return f"pmix rank {rank} of {RANKS}, local {rank} of {RANKS}, node 0 of 1"


def meets_twice():
    code, lines, told = mpirun("twice")
    assert code == 0, (code, lines, told)
    each = sum(([place(rank)] * 2 + [f"worker{rank} met {RANKS} and called worker{(rank + 1) % RANKS}"] * 2
                for rank in range(RANKS)), [])
    assert lines == sorted(each), lines


def a_silent_process_is_named():
    code, lines, _ = mpirun("silent", "1")
    failures = [line for line in lines if line.startswith("start: ")]
    assert code != 0 and failures, lines
    for failure in failures:
        assert failure == ('start: DEADLINE: start: rendezvous "pmix://": rank 1 of a world of 3 did not come in time'), failure


def a_killed_process_ends_the_job():
    code, lines, told = mpirun("killed", "2")
    assert code != 0 and "signal 9" in told, (code, lines, told)
    assert not [line for line in lines if " met " in line], lines


def what_the_launcher_does_not_say_is_refused():
    code, lines, told = mpirun("refused")
    assert code == 0, (code, lines, told)
    refused = [line for line in lines if line.startswith("start: INVALID_ARGUMENT: ")]
    for rank in range(RANKS):
        text = f"this is rank {(rank + 1) % RANKS} of {RANKS} by its options or environment, and rank {rank} of {RANKS} by PMIx"
        assert len([line for line in refused if text in line]) == 1, lines
    assert len([line for line in refused if "a world of -1 is open, and a job of PMIx has a size" in line]) == RANKS, lines


def a_forked_child_is_refused():
    code, lines, told = mpirun("forked")
    assert code == 0, (code, lines, told)
    refused = [line for line in lines if line.startswith("place: DISCONNECTED: ") and "serves the parent of this process" in line]
    assert len(refused) == RANKS, lines
    assert len([line for line in lines if line.startswith("pmix rank")]) == 2 * RANKS, lines


def variables_of_distag_count_before():
    code, lines, _ = mpirun("twice", DISTAG_WORLD_SIZE="2", DISTAG_RANK="7")
    assert code != 0 and any('DISTAG_RANK="7"' in line for line in lines), lines


def without_its_launcher():
    done = subprocess.run([MEMBER, "twice"], env={**CLEAN, "PMIX_RANK": "0", "PMIX_NAMESPACE": "gone"}, stdout=subprocess.PIPE,
                          text=True, timeout=240, check=False)
    assert done.returncode == 1 and re.match(r"place: DISCONNECTED: .*no launcher serves this process", done.stdout), done.stdout


def main():
    without_its_launcher()
    if shutil.which("mpirun") is None:
        assert "DISTAG_CI" not in os.environ, "mpirun is not here: install Debian's openmpi-bin"
        print("skipped: mpirun is not here (Debian's openmpi-bin)")
        sys.exit(77)
    meets_twice()
    a_silent_process_is_named()
    a_killed_process_ends_the_job()
    what_the_launcher_does_not_say_is_refused()
    a_forked_child_is_refused()
    variables_of_distag_count_before()


if __name__ == "__main__":
    main()
