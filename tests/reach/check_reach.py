"""Groups over several machines, made of network namespaces: three hosts on a bridge, each with its own addresses.

usage: check_reach.py DISTAG PARTICIPANT DIGITS DIGITS_DATA
Needs root and a kernel with namespaces; elsewhere it says so and ends with 77 (skipped). Where DISTAG_CI is set, only a
kernel that refuses namespaces is a reason."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DISTAG, PARTICIPANT, DIGITS, DATA = (os.path.realpath(path) for path in sys.argv[1:5])
HOSTS = 3
PORT = 29500
SKIPPED = 77
NAME = f"distag-{os.getpid()}"


def status(name):
    """The code of a status, as the header has it."""
    header = os.path.join(os.path.dirname(__file__), "..", "..", "include", "distag.h")
    with open(header, encoding="utf-8") as file:
        return int(re.search(rf"DISTAG_E_{name} = (\d+)", file.read()).group(1))


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


class Network:
    """A bridge in a namespace of its own, and a namespace for each host."""

    def __init__(self):
        self.spaces = []

    def add_space(self, name):
        ip("netns", "add", name)
        self.spaces.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def __enter__(self):
        try:
            hub = f"{NAME}-hub"
            self.add_space(hub)
            ip("-n", hub, "link", "add", "bridge", "type", "bridge")
            ip("-n", hub, "link", "set", "bridge", "up")
            for host in range(HOSTS):
                self.add_space(self.space(host))
                ip("-n", hub, "link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0",
                   "netns", self.space(host))
                ip("-n", hub, "link", "set", f"port{host}", "master", "bridge", "up")
                ip("-n", self.space(host), "address", "add", f"{address(host)}/24", "dev", "eth0")
                ip("-n", self.space(host), "address", "add", f"{address(host, 6)}/64", "dev", "eth0", "nodad")
                ip("-n", self.space(host), "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in reversed(self.spaces):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, timeout=30)

    @staticmethod
    def space(host):
        return f"{NAME}-{host}"

    def set_link(self, host, state):
        ip("-n", f"{NAME}-hub", "link", "set", f"port{host}", state)


def address(host, family=4):
    return f"10.77.0.{host + 1}" if family == 4 else f"fd77::{host + 1}"


class Member:
    """A process on a host."""

    def __init__(self, network, host, arguments, key, family=4):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("DISTAG_", "MASTER_")) and name not in ("RANK", "WORLD_SIZE")}
        server = address(0, family)
        environment.update(RANK=str(host), WORLD_SIZE=str(HOSTS), OPENBLAS_NUM_THREADS="1",
                           DISTAG_RENDEZVOUS=f"tcp://{f'[{server}]' if family == 6 else server}:{PORT}")
        if isinstance(key, dict):
            environment.update(key)
        elif key:
            environment["DISTAG_GROUP_KEY_FILE"] = key
        self.process = subprocess.Popen(["ip", "netns", "exec", network.space(host), *arguments], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = ""

    def end(self, timeout=90):
        """Its exit code, once it has ended."""
        try:
            self.output += self.process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.output += self.process.communicate()[0]
            raise AssertionError(f"it did not end: {self.output}") from None
        return self.process.returncode

    def read_until(self, text):
        while text not in self.output:
            line = self.process.stdout.readline()
            assert line, f"no \"{text}\" in: {self.output}"
            self.output += line

    def go_on(self, seconds):
        """It does not end in that time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"it has ended: {self.end()}, {self.output}")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@contextlib.contextmanager
def members(network, arguments, keys, **options):
    """One on each host for which there is a key in the list (a file, variables of the environment, None: without)."""
    group = [Member(network, host, arguments, key, **options) for host, key in enumerate(keys)]
    try:
        yield group
    finally:
        for member in group:
            member.stop()


def check_meet(network, key, family=4, extra=()):
    with members(network, [PARTICIPANT, "meet", "0", *extra], [key] * HOSTS, family=family) as group:
        for member in group:
            assert member.end() == 0, member.output
            assert "all answered" in member.output, member.output


def check_digits(network, key):
    """Three hosts learn what three processes of one host learn, to the last digit."""
    alone = subprocess.run([DISTAG, "run", "-n", "3", DIGITS, DATA], check=True, capture_output=True, text=True,
                           timeout=300, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}).stdout
    with members(network, [DIGITS, DATA], [key] * HOSTS) as group:
        for member in group:
            assert member.end(300) == 0, member.output
        spread = group[0].output
    learned = r"(?:epoch .*|held-out accuracy [0-9.]+)"
    expected = re.findall(learned, alone)
    assert len(expected) >= 3, alone
    assert re.findall(learned, spread) == expected, (alone, spread)


def check_without_key(network):
    """Nobody opens a socket that others reach: all are refused before they wait."""
    with members(network, [PARTICIPANT, "meet", "0"], [None] * HOSTS) as group:
        for member in group:
            assert member.end() == status("DENIED"), member.output
            assert "DISTAG_GROUP_KEY_FILE" in member.output, member.output
            assert seconds_of_failure(member) < 2, member.output


def check_other_key(network, key, other_key):
    """Who has another key, or none but dares, is refused at once; the others meet when the right one comes."""
    with members(network, [PARTICIPANT, "meet", "0"], [key, key]) as group:
        for bad, extra in ((other_key, []), (None, ["insecure"])):
            stranger = Member(network, 2, [PARTICIPANT, "meet", "0", *extra], bad)
            try:
                assert stranger.end() == status("DENIED"), stranger.output
                assert seconds_of_failure(stranger) < 2, stranger.output
            finally:
                stranger.stop()
        right = Member(network, 2, [PARTICIPANT, "meet", "0"], key)
        try:
            for member in [*group, right]:
                assert member.end() == 0, member.output
        finally:
            right.stop()
        assert f"a connection from tcp://{address(2)}:" in group[0].output, group[0].output


def make_worker_keys(folder, name, count=HOSTS):
    """A key for each of the workers, as variables of their environments; and that of a stranger."""
    made, lines = os.path.join(folder, name), []
    os.mkdir(made)
    for host in range(count):
        lines.append(subprocess.run([DISTAG, "keygen", "--worker", f"worker{host}", made], check=True,
                                    capture_output=True, text=True, timeout=30).stdout)
    listed = os.path.join(made, "list")
    with open(listed, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.writelines(lines)
    return [{"DISTAG_SECRET_KEY_FILE": os.path.join(made, f"worker{host}.key"), "DISTAG_PEER_KEYS_FILE": listed}
            for host in range(count)]


def check_worker_keys(network, folder):
    """A key for each: who has none of the list, or that of another name, is refused at once; the others meet."""
    keys, others = make_worker_keys(folder, "keys"), make_worker_keys(folder, "others")
    unlisted = {**others[2], "DISTAG_PEER_KEYS_FILE": keys[0]["DISTAG_PEER_KEYS_FILE"]}
    group_key = make_key(folder, "of_a_group.key")
    with members(network, [PARTICIPANT, "meet", "0"], keys[:2]) as group:
        for bad in (unlisted, keys[1], others[2], group_key):
            stranger = Member(network, 2, [PARTICIPANT, "meet", "0"], bad)
            try:
                assert stranger.end() == status("DENIED"), stranger.output
                assert seconds_of_failure(stranger) < 2, stranger.output
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


def check_partition(network, key, seconds, heals):
    """A host that is cut off for less than a lease is waited for; for longer, it is lost and told by name."""
    with members(network, [PARTICIPANT, "talk", "8"], [key] * HOSTS) as group:
        for member in group:
            member.read_until("started")
        cut = time.monotonic()
        network.set_link(2, "down")
        if heals:
            group[0].go_on(seconds)
            network.set_link(2, "up")
        codes = [member.end() for member in group]
        ended = time.monotonic()
        network.set_link(2, "up")
        if heals:
            assert codes == [0] * HOSTS, [member.output for member in group]
            return
        assert codes == [status("DISCONNECTED")] * HOSTS, [member.output for member in group]
        assert ended - cut < 6, ended - cut
        for member in group[:2]:
            assert "worker2" in member.output, member.output


def seconds_of_failure(member):
    return float(re.search(r"after ([0-9.]+) s", member.output).group(1))


def make_key(folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        subprocess.run([DISTAG, "keygen"], check=True, stdout=file, timeout=30)
    return path


def skip_or_fail():
    """Ends the test where there are no namespaces."""
    may_skip = not os.environ.get("DISTAG_CI")
    if os.geteuid() != 0:
        reason = "not root"
    elif shutil.which("ip") is None:
        reason = "no command ip: install iproute2"
    else:
        done = subprocess.run(["ip", "netns", "add", f"{NAME}-trial"], capture_output=True, text=True, timeout=30)
        if done.returncode == 0:
            ip("netns", "del", f"{NAME}-trial")
            return
        reason = f"no network namespaces: {done.stderr.strip()}"
        may_skip = may_skip or "not permitted" in done.stderr
    print(f"skipped: {reason}")
    sys.exit(SKIPPED if may_skip else 1)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    skip_or_fail()
    with tempfile.TemporaryDirectory() as folder, Network() as network:
        key, other_key = make_key(folder, "group.key"), make_key(folder, "other.key")
        checks = (("meet", lambda: check_meet(network, key)),
                  ("meet by IPv6", lambda: check_meet(network, key, family=6)),
                  ("meet, bound to all addresses", lambda: check_meet(network, key, extra=["bind=tcp://0.0.0.0:0"])),
                  ("meet, bound to an interface and a range of ports",
                   lambda: check_meet(network, key, extra=["bind=tcp://eth0:29600-29602"])),
                  ("digits", lambda: check_digits(network, key)),
                  ("no key", lambda: check_without_key(network)),
                  ("another key", lambda: check_other_key(network, key, other_key)),
                  ("a key for each worker", lambda: check_worker_keys(network, folder)),
                  ("a key for all to read", lambda: check_open_file(network, key)),
                  ("no key, and allowed", lambda: check_insecure(network)),
                  ("a short cut", lambda: check_partition(network, key, 0.7, True)),
                  ("a long cut", lambda: check_partition(network, key, 0, False)))
        for name, check in checks:
            begun = time.monotonic()
            check()
            print(f"{name}: ok, {time.monotonic() - begun:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
