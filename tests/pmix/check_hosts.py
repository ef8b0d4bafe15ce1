"""Groups over two machines that mpirun starts, which network namespaces stand for: they meet by PMIx alone.
usage: check_hosts.py DISTAG MEMBER DIGITS DATA"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "reach"))
import hosts  # noqa: E402

DISTAG, MEMBER, DIGITS, DATA = sys.argv[1:]
PLACES = (2, 1)  # of each host
RANKS = sum(PLACES)
FOREIGN = re.compile(r"(DISTAG_(?!CI|LIBRARY)|MASTER_|SLURM_|PMIX_|OMPI_|TORCHELASTIC_|GROUP_)|"
                     r"(LOCAL_)?(RANK|WORLD_SIZE)$|JOB_COMPLETION_INDEX$")


def mpirun(network, folder, *command, key=None):
    agent = os.path.join(folder, "agent")  # in the place of ssh: enters the namespaces of the host
    with open(agent, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o700)) as file:
        spaces = "\n".join(f"  {hosts.address(host)}) space={network.space(host)} ;;" for host in range(2))
        file.write(f"#!/bin/sh\ncase $1 in\n{spaces}\nesac\nshift\n"
                   'exec ip netns exec "$space" unshare --uts /bin/sh -c "hostname $space && $*"\n')
    environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    place = ",".join(f"{hosts.address(host)}:{count}" for host, count in enumerate(PLACES))
    passed = [] if key is None else ["-x", f"DISTAG_GROUP_KEY_FILE={key}"]
    done = subprocess.run(["ip", "netns", "exec", network.space(0), "mpirun", "--oversubscribe", "--allow-run-as-root", "--mca",
                           "plm_rsh_agent", agent, "--host", place, "-n", str(RANKS), *passed, *command],
                          env={**environment, "TMPDIR": folder}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False)
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def meet(network, folder, key):
    code, lines, told = mpirun(network, folder, MEMBER, "twice", key=key)
    assert code == 0, (code, lines, told)
    each = sum(([f"pmix rank {rank} of {RANKS}, local {rank % 2} of {PLACES[rank // 2]}, node {rank // 2} of 2"] * 2 +
                [f"worker{rank} met {RANKS} and called worker{(rank + 1) % RANKS}"] * 2 for rank in range(RANKS)), [])
    assert lines == sorted(each), lines


def need_a_key(network, folder):
    code, lines, _ = mpirun(network, folder, MEMBER, "twice")
    refused = [line for line in lines if line.startswith("start: DENIED")]
    assert code != 0 and refused and all("DISTAG_GROUP_KEY_FILE" in line for line in refused), lines


def learn_digits(network, folder, key):
    code, lines, told = mpirun(network, folder, DIGITS, DATA, "2", key=key)
    assert code == 0, (code, lines, told)
    (found,) = [float(match[1]) for line in lines if (match := re.search(r"held-out accuracy (0\.\d+) on", line))]
    assert found >= 0.93, lines


def main():
    if shutil.which("mpirun") is None:
        assert "DISTAG_CI" not in os.environ, "mpirun is not here: install Debian's openmpi-bin"
        print("skipped: mpirun is not here (Debian's openmpi-bin)")
        sys.exit(hosts.SKIPPED)
    hosts.skip_or_fail()
    with tempfile.TemporaryDirectory() as folder, hosts.Network(2) as network:
        key = hosts.make_key(DISTAG, folder, "group.key")
        hosts.run((("meet", lambda: meet(network, folder, key)), ("no key", lambda: need_a_key(network, folder)),
                   ("digits", lambda: learn_digits(network, folder, key))))


if __name__ == "__main__":
    main()
