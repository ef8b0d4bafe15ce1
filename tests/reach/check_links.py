"""Groups over four hosts, made of network namespaces, whose links lose, delay, throttle or swallow what they carry; and
the samples over them.

usage: check_links.py DISTAG PARTICIPANT [EXPECTED_FOLDER DIGITS_DATA SAMPLE...]   with samples: these alone
Where it is skipped: see check_reach.py."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from hosts import LIMIT, Member, Network, address, make_key, members, run, skip_or_fail, status

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "samples"))
from check_output import missing_lines  # noqa: E402

DISTAG, PARTICIPANT, *OF_SAMPLES = (os.path.realpath(path) for path in sys.argv[1:])
EXPECTED, DATA, *SAMPLES = OF_SAMPLES or (None, None)
HOSTS = 4
LEASE = 2  # of participants whose link is slow or silent, in seconds
FAR = 2    # the host whose link is bad


def expect_all(group):
    codes = [member.end() for member in group]
    assert codes == [0] * len(group), "".join(member.output for member in group)
    assert all("all answered" in member.output for member in group), "".join(member.output for member in group)


def check_loss(network, key):
    """Of what comes to one host three packets of a hundred are lost."""
    with network.filter(FAR, "numgen random mod 100 < 3 drop"), \
            members(network, [PARTICIPANT, "talk", "3", "payload=100000"], [key] * HOSTS) as group:
        expect_all(group)


@contextlib.contextmanager
def slow_way(network, port, target, target_port, delay):
    """On host 0."""
    script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "slow_way.py")
    process = subprocess.Popen(["ip", "netns", "exec", network.space(0), sys.executable, "-B", script, address(0),
                                str(port), target, str(target_port), str(delay)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.communicate("", timeout=LIMIT)


def check_delay(network, key):
    """A host behind another one's address, as behind a NAT, and a tenth of a second away."""
    delay, port, own_port, seconds = 0.1, 29700, 29650, 2
    with slow_way(network, port, address(FAR), own_port, delay), contextlib.ExitStack() as ends:
        group = []
        for host in range(HOSTS):
            extra = [f"bind=tcp://eth0:{own_port}", f"advertise=tcp://{address(0)}:{port}"] if host == FAR else []
            group.append(Member(network, host, [PARTICIPANT, "talk", str(seconds), *extra], key))
            ends.callback(group[-1].stop)
        expect_all(group)
        rounds = int(re.search(r"(\d+) rounds", group[0].output).group(1))
        assert 1 <= rounds <= seconds / delay + 1, group[0].output


def check_rate(network, key):
    """A transfer that takes longer than a lease is no loss, by either engine of sockets."""
    arguments = [PARTICIPANT, "meet", "0", "payload=1200000", f"lease={LEASE}"]
    for engine in ("zmq", "zmtp"):
        with network.rate(FAR, "20mbit"), \
                members(network, arguments, [key] * HOSTS, extra={"DISTAG_SOCKET_ENGINE": engine}) as group:
            begun = time.monotonic()
            expect_all(group)
            assert time.monotonic() - begun > LEASE, engine


def check_black_hole(network, key):
    """Small packets arrive and large ones do not, and nobody is told: the host is lost by name, and those beyond it."""
    with members(network, [PARTICIPANT, "talk", "600", "payload=200000", f"lease={LEASE}"], [key] * HOSTS) as group:
        for member in group:
            member.read_until("started")
        begun = time.monotonic()
        with network.filter(FAR, "meta length > 1000 drop"):
            codes = [member.end() for member in group]
        # As over a slow link it takes four leases.
        print(f"figure: reach.black_hole_told_leases {(time.monotonic() - begun) / LEASE:.2f} leases")
        assert set(codes) == {status("DISCONNECTED")}, [member.output for member in group]
        for host, member in enumerate(group):
            assert host == FAR or f"worker{FAR}" in member.output, member.output


def twin(command):
    """The command on a host whose name others have, too."""
    return ["unshare", "--uts", "sh", "-c", 'hostname twin && exec "$@"', "sh", *command]


def check_equal_names(network, key):
    with members(network, twin([PARTICIPANT, "meet", "0"]), [key] * HOSTS) as group:
        expect_all(group)
    check_sample(network, key, "12_sharded", ["fully"], prepare=twin)


def expect_output(name, group):
    with open(os.path.join(EXPECTED, f"{name}.expected"), encoding="utf-8") as file:
        expected = file.read()
    for member in group:
        assert member.end() == 0, member.output
    output = "".join(member.output for member in reversed(group))  # rank 0 has the last word
    assert not list(missing_lines(expected, output)), output


def sample(name):
    return next(path for path in SAMPLES if os.path.basename(path) == name)


def check_sample(network, key, name, arguments=(), prepare=lambda command: command, hosts=HOSTS, engine=""):
    extra = {"WORLD_SIZE": str(hosts), "DISTAG_SOCKET_ENGINE": engine}
    with members(network, prepare([sample(name), *arguments]), [key] * hosts, extra=extra) as group:
        expect_output(name, group)


def check_pair(network, key, name):
    """A sample of two workers, by each engine."""
    for engine in ("zmq", "zmtp"):
        check_sample(network, key, name, hosts=2, engine=engine)


def check_elastic(network, key):
    """It starts its workers itself, beside it: all they say to each other goes over the address of the host."""
    with members(network, [sample("10_elastic")], [key]) as group:
        expect_output("10_elastic", group)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    skip_or_fail()
    with tempfile.TemporaryDirectory() as folder, Network(HOSTS) as network:
        key = make_key(DISTAG, folder, "group.key")
        links = (("loss", lambda: check_loss(network, key)),
                 ("delay, and another address", lambda: check_delay(network, key)),
                 ("a slow link", lambda: check_rate(network, key)),
                 ("a black hole for large packets", lambda: check_black_hole(network, key)))
        samples = (("hosts of one name", lambda: check_equal_names(network, key)),
                   ("03_two_worker_backward", lambda: check_pair(network, key, "03_two_worker_backward")),
                   ("11_classic", lambda: check_pair(network, key, "11_classic")),
                   ("07_parameter_server", lambda: check_sample(network, key, "07_parameter_server", [DATA])),
                   ("08_pipeline", lambda: check_sample(network, key, "08_pipeline")),
                   ("10_elastic", lambda: check_elastic(network, key)))
        run(samples if SAMPLES else links)
    return 0


if __name__ == "__main__":
    sys.exit(main())
