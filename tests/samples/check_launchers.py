"""Digits under each launcher, the same as under `distag run`. torchrun and mpirun run where they are installed; else, and
for Slurm and Kubernetes, their variables stand in. usage: check_launchers.py DISTAG DIGITS DATA REPOSITORY"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

DISTAG, DIGITS, DATA, ROOT = sys.argv[1:]
RANKS, LIMIT = 3, 500
FOREIGN = re.compile(r"(DISTAG_(?!LIBRARY)|MASTER_|SLURM_|PMIX_|OMPI_|TORCHELASTIC_|GROUP_)|"
                     r"(LOCAL_)?(RANK|WORLD_SIZE)$|JOB_COMPLETION_INDEX$")
CLEAN = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
RESULT = re.compile(r"held-out accuracy (0\.\d+) on .*")


def result_of(outputs):
    (found,) = [match for output in outputs for match in RESULT.finditer(output)]
    assert float(found[1]) >= 0.93, found[0]
    return found[0]


def run(*command, **environment):
    done = subprocess.run([*command, DIGITS, DATA, "2"], env={**CLEAN, **environment}, capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return result_of([done.stdout])


def stand_in(make_environment, *command):
    """A process for each rank, with the variables that a launcher would set."""
    ranks = [subprocess.Popen([*command, DIGITS, DATA, "2"], env={**CLEAN, **make_environment(rank)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(RANKS)]
    try:
        outputs = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(rank.returncode == 0 for rank in ranks), outputs
    return result_of(outputs)


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def of_slurm(rank, job):
    return {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
            "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "1",
            "SLURM_STEP_TASKS_PER_NODE": str(RANKS), "SLURM_STEP_NODELIST": "node7", "WORLD_SIZE": "9"}


def of_open_mpi(rank, folder):
    """Within a step of Slurm, whose SLURM_PROCID counts the daemons."""
    return {**of_slurm(rank // 2, 1), "PMIX_NAMESPACE": "x", "PMIX_RANK": str(rank), "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(RANKS), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(RANKS), "DISTAG_RENDEZVOUS": f"file://{folder}"}


def of_kubernetes(rank, folder):
    return {"JOB_COMPLETION_INDEX": str(rank), "WORLD_SIZE": str(RANKS), "DISTAG_RENDEZVOUS": f"file://{folder}"}


def results():
    yield "distag run", run(DISTAG, "run", "-n", str(RANKS))
    if shutil.which("torchrun"):
        with tempfile.TemporaryDirectory() as folder:
            command = ["torchrun", "--nnodes", "1", "--nproc_per_node", str(RANKS), "-r", "1", "-t", "1", "--log_dir", folder,
                       "--no_python"]
            yield "torchrun --standalone", run(*command[:1], "--standalone", *command[1:])
            port = next(port for port in range(24000 + os.getpid() % 4000, 32000) if is_free(port) and is_free(port + 1))
            yield "torchrun", run(*command[:1], "--master_port", str(port), *command[1:])
    job = next(job for job in range(os.getpid() % 700, 798) if is_free(20000 + job * 16))
    yield "slurm", stand_in(lambda rank: of_slurm(rank, job))
    wrapper = os.path.join(ROOT, "packaging", "mpi", "distag-mpi")
    with tempfile.TemporaryDirectory() as folder:
        if shutil.which("mpirun"):
            mpirun = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(RANKS)]
            yield "mpirun by PMIx", run(*mpirun, TMPDIR=folder)
            yield "mpirun", run(*mpirun, "-x", f"DISTAG_RENDEZVOUS=file://{folder}/meet", wrapper, TMPDIR=folder)
        else:
            yield "mpirun's variables", stand_in(lambda rank: of_open_mpi(rank, folder), wrapper)
    with tempfile.TemporaryDirectory() as folder:
        yield "kubernetes", stand_in(lambda rank: of_kubernetes(rank, folder))


def main():
    found = {}
    for launcher, result in results():
        print(f"{launcher}: {result}", flush=True)
        found[launcher] = result
    assert len(set(found.values())) == 1, found


if __name__ == "__main__":
    main()
