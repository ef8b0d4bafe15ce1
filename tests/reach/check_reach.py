"""Groups over several machines, made of network namespaces: three hosts on a bridge, each with its own addresses.

usage: check_reach.py DISTAG PARTICIPANT DIGITS DIGITS_DATA
Needs root and a kernel with namespaces; elsewhere it says so and ends with 77 (skipped). Where DISTAG_CI is set, only a
kernel that refuses namespaces is a reason."""
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from hosts import AT_ONCE, LIMIT, Member, Network, address, make_key, members, run, skip_or_fail, status, was_refused_at_once

DISTAG, PARTICIPANT, DIGITS, DATA = (os.path.realpath(path) for path in sys.argv[1:5])
HOSTS = 3
LEASE = "lease=2"  # of those that are silent for as long


def check_meet(network, key, family=4, extra=()):
    with members(network, [PARTICIPANT, "meet", "0", *extra], [key] * HOSTS, family=family) as group:
        for member in group:
            assert member.end() == 0, member.output
            assert "all answered" in member.output, member.output


def check_digits(network, key):
    """Three hosts learn what three processes of one host learn, to the last digit, by each engine of sockets."""
    alone = subprocess.run([DISTAG, "run", "-n", "3", DIGITS, DATA], check=True, capture_output=True, text=True,
                           timeout=LIMIT, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}).stdout
    learned = r"(?:epoch .*|held-out accuracy [0-9.]+)"
    expected = re.findall(learned, alone)
    assert len(expected) >= 3, alone
    for engine in ("zmq", "zmtp"):
        with members(network, [DIGITS, DATA], [key] * HOSTS, extra={"DISTAG_SOCKET_ENGINE": engine}) as group:
            for member in group:
                assert member.end() == 0, member.output
            spread = group[0].output
        assert re.findall(learned, spread) == expected, (engine, alone, spread)


def check_without_key(network):
    """Nobody opens a socket that others reach: all are refused before they wait."""
    with members(network, [PARTICIPANT, "meet", "0"], [None] * HOSTS) as group:
        for member in group:
            assert member.end() == status("DENIED"), member.output
            assert "DISTAG_GROUP_KEY_FILE" in member.output, member.output
            assert was_refused_at_once(member), member.output


def check_other_key(network, key, other_key, engine):
    """A member with another key, or without one, is refused at once; the others meet when the right one comes. The log
    names the address of one stranger at least: libzmq gives none for a connection that has ended already."""
    named = f"a connection from tcp://{address(2)}:"
    extra_of_group = {"DISTAG_SOCKET_ENGINE": engine}
    with members(network, [PARTICIPANT, "meet", "0"], [key, key], extra=extra_of_group) as group:
        begun = time.monotonic()
        for attempt in itertools.count():  # the log has one of them a second
            bad, extra = ((other_key, []), (None, ["insecure"]))[attempt % 2]
            stranger = Member(network, 2, [PARTICIPANT, "meet", "0", *extra], bad, extra=extra_of_group)
            try:
                assert stranger.end() == status("DENIED"), stranger.output
                assert was_refused_at_once(stranger), stranger.output
            finally:
                stranger.stop()
            if attempt > 0 and named in group[0].read_now():
                break
            assert time.monotonic() - begun < AT_ONCE, group[0].output
        right = Member(network, 2, [PARTICIPANT, "meet", "0"], key, extra=extra_of_group)
        try:
            for member in [*group, right]:
                assert member.end() == 0, member.output
        finally:
            right.stop()
        assert named in group[0].output, group[0].output


def make_worker_keys(folder, name, count=HOSTS):
    """A key for each of the workers, as variables of their environments; and that of a stranger."""
    made, lines = os.path.join(folder, name), []
    os.mkdir(made)
    for host in range(count):
        lines.append(subprocess.run([DISTAG, "keygen", "--worker", f"worker{host}", made], check=True,
                                    capture_output=True, text=True, timeout=LIMIT).stdout)
    listed = os.path.join(made, "list")
    with open(listed, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.writelines(lines)
    return [{"DISTAG_SECRET_KEY_FILE": os.path.join(made, f"worker{host}.key"), "DISTAG_PEER_KEYS_FILE": listed}
            for host in range(count)]


def check_worker_keys(network, folder):
    """A key for each: who has none of the list, or that of another name, is refused at once; the others meet."""
    keys, others = make_worker_keys(folder, "keys"), make_worker_keys(folder, "others")
    unlisted = {**others[2], "DISTAG_PEER_KEYS_FILE": keys[0]["DISTAG_PEER_KEYS_FILE"]}
    group_key = make_key(DISTAG, folder, "of_a_group.key")
    with members(network, [PARTICIPANT, "meet", "0"], keys[:2]) as group:
        for bad in (unlisted, keys[1], others[2], group_key):
            stranger = Member(network, 2, [PARTICIPANT, "meet", "0"], bad)
            try:
                assert stranger.end() == status("DENIED"), stranger.output
                assert was_refused_at_once(stranger), stranger.output
            finally:
                stranger.stop()
        right = Member(network, 2, [PARTICIPANT, "meet", "0"], keys[2])
        try:
            for member in [*group, right]:
                assert member.end() == 0, member.output
                assert "all answered" in member.output, member.output
        finally:
            right.stop()
        assert "refused" in group[0].output, group[0].output


def check_open_file(network, key):
    """A key that other users can read is no key."""
    os.chmod(key, 0o644)
    try:
        with members(network, [PARTICIPANT, "meet", "0"], [key]) as group:
            assert group[0].end() == status("DENIED"), group[0].output
            assert "chmod 600" in group[0].output, group[0].output
    finally:
        os.chmod(key, 0o600)


def check_insecure(network):
    with members(network, [PARTICIPANT, "meet", "0", "insecure"], [None] * HOSTS) as group:
        for member in group:
            assert member.end() == 0, member.output
            assert "allow_insecure" in member.output, member.output


def check_short_cut(network, key):
    """A host that is cut off for less than a lease is waited for."""
    with members(network, [PARTICIPANT, "talk", "6", "lease=30"], [key] * HOSTS) as group:
        for member in group:
            member.read_until("started")
        network.set_link(2, "down")
        group[0].go_on(0.7)
        network.set_link(2, "up")
        codes = [member.end() for member in group]
        assert codes == [0] * HOSTS, [member.output for member in group]


def check_long_cut(network, key):
    """For longer than a lease, it is lost and told by name, while the others would talk on."""
    with members(network, [PARTICIPANT, "talk", "600", LEASE], [key] * HOSTS) as group:
        for member in group:
            member.read_until("started")
        cut = time.monotonic()
        network.set_link(2, "down")
        codes = [member.end() for member in group]
        print(f"figure: reach.long_cut_told_s {time.monotonic() - cut:.2f} s")
        network.set_link(2, "up")
        assert codes == [status("DISCONNECTED")] * HOSTS, [member.output for member in group]
        for member in group[:2]:
            assert "worker2" in member.output, member.output


def check_late_heal(network, key):
    """A host that is cut off for longer than the lease is lost for good: the group does not take it back by itself once
    the way is there again, and its own calls fail, too, naming those that it has lost."""
    with members(network, [PARTICIPANT, "talk", "600", LEASE], [key] * HOSTS) as group:
        for member in group:
            member.read_until("started")
        network.set_link(2, "down")
        codes = [member.end() for member in group[:2]]  # they have noticed
        network.set_link(2, "up")
        codes.append(group[2].end())
        assert codes == [status("DISCONNECTED")] * HOSTS, [member.output for member in group]
        assert all("worker2" in member.output for member in group[:2]), [member.output for member in group]
        assert re.search("worker[01]", group[2].output.split("started")[-1]), group[2].output


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    skip_or_fail()
    with tempfile.TemporaryDirectory() as folder, Network(HOSTS) as network:
        key, other_key = make_key(DISTAG, folder, "group.key"), make_key(DISTAG, folder, "other.key")
        checks = (("meet", lambda: check_meet(network, key)),
                  ("meet by IPv6", lambda: check_meet(network, key, family=6)),
                  ("meet, bound to all addresses", lambda: check_meet(network, key, extra=["bind=tcp://0.0.0.0:0"])),
                  ("meet, bound to an interface and a range of ports",
                   lambda: check_meet(network, key, extra=["bind=tcp://eth0:29600-29602"])),
                  ("digits", lambda: check_digits(network, key)),
                  ("no key", lambda: check_without_key(network)),
                  ("another key", lambda: check_other_key(network, key, other_key, "zmq")),
                  ("another key, by zmtp", lambda: check_other_key(network, key, other_key, "zmtp")),
                  ("a key for each worker", lambda: check_worker_keys(network, folder)),
                  ("a key for all to read", lambda: check_open_file(network, key)),
                  ("no key, and allowed", lambda: check_insecure(network)),
                  ("a short cut", lambda: check_short_cut(network, key)),
                  ("a long cut", lambda: check_long_cut(network, key)),
                  ("a cut longer than the lease, which heals", lambda: check_late_heal(network, key)))
        run(checks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
