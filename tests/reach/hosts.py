"""Hosts made of network namespaces, on a bridge, each with its own addresses; and processes on them."""
import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import time

PORT = 29500
LIMIT = 300    # seconds, only against hanging
AT_ONCE = 60   # seconds, well before the 300 that a participant waits for its group
SKIPPED = 77
NAME = f"distag-{os.getpid()}"


def status(name):
    """The code of a status, as the header has it."""
    header = os.path.join(os.path.dirname(__file__), "..", "..", "include", "distag.h")
    with open(header, encoding="utf-8") as file:
        return int(re.search(rf"DISTAG_E_{name} = (\d+)", file.read()).group(1))


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=LIMIT)


class Network:
    """A bridge in a namespace of its own, and a namespace for each host."""

    def __init__(self, hosts):
        self.hosts = hosts
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
            for host in range(self.hosts):
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
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, timeout=LIMIT)

    @staticmethod
    def space(host):
        return f"{NAME}-{host}"

    def set_link(self, host, state):
        ip("-n", f"{NAME}-hub", "link", "set", f"port{host}", state)

    def command(self, host, *arguments):
        """A command of that host's network, awaited."""
        return subprocess.run(["ip", "netns", "exec", self.space(host), *arguments], check=True, capture_output=True,
                              text=True, timeout=LIMIT).stdout

    @contextlib.contextmanager
    def filter(self, host, rule):
        """What comes to that host goes through a rule of nft."""
        self.command(host, "nft", f"add table inet trial; add chain inet trial come {{ type filter hook input priority 0; }}; "
                     f"add rule inet trial come {rule}")
        try:
            yield
        finally:
            self.command(host, "nft", "delete table inet trial")

    @contextlib.contextmanager
    def rate(self, host, rate):
        """What leaves that host, and what goes to it, takes its time."""
        limit = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
        self.command(host, "tc", "qdisc", "add", "dev", "eth0", *limit)
        hub = ["ip", "netns", "exec", f"{NAME}-hub", "tc", "qdisc"]
        subprocess.run([*hub, "add", "dev", f"port{host}", *limit], check=True, capture_output=True, text=True, timeout=LIMIT)
        try:
            yield
        finally:
            subprocess.run([*hub, "del", "dev", f"port{host}", "root"], check=True, capture_output=True, text=True, timeout=LIMIT)
            self.command(host, "tc", "qdisc", "del", "dev", "eth0", "root")


def address(host, family=4):
    return f"10.77.0.{host + 1}" if family == 4 else f"fd77::{host + 1}"


class Member:
    """A process on a host."""

    def __init__(self, network, host, arguments, key, family=4, extra=None):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("DISTAG_", "MASTER_")) and name not in ("RANK", "WORLD_SIZE")}
        server = address(0, family)
        environment.update(RANK=str(host), WORLD_SIZE=str(network.hosts), OPENBLAS_NUM_THREADS="1",
                           DISTAG_RENDEZVOUS=f"tcp://{f'[{server}]' if family == 6 else server}:{PORT}")
        if isinstance(key, dict):
            environment.update(key)
        elif key:
            environment["DISTAG_GROUP_KEY_FILE"] = key
        environment.update(extra or {})
        self.process = subprocess.Popen(["ip", "netns", "exec", network.space(host), *arguments], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = ""

    def end(self, timeout=LIMIT):
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

    def read_now(self):
        """What it has written so far."""
        descriptor = self.process.stdout.fileno()
        while select.select([descriptor], [], [], 0)[0]:
            text = os.read(descriptor, 65536).decode()
            if not text:
                break
            self.output += text
        return self.output

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


def was_refused_at_once(member):
    return float(re.search(r"after ([0-9.]+) s", member.output).group(1)) < AT_ONCE


def make_key(distag, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        subprocess.run([distag, "keygen"], check=True, stdout=file, timeout=LIMIT)
    return path


def what_is_missing():
    """Of all that the tests do with hosts, tried on two of them: the first that this machine does not let us. None: it
    is all there."""
    try:
        with Network(2) as network:
            network.command(0, "true")
            with network.filter(0, "numgen random mod 100 < 1 drop"), network.rate(1, "20mbit"):
                network.set_link(1, "down")
            network.command(0, "unshare", "--uts", "hostname", "trial")
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason is given"])[-1]
        return f"hosts made of network namespaces need root with CAP_SYS_ADMIN and CAP_NET_ADMIN, and /sys: " \
               f"{' '.join(error.cmd)}: {last}"
    return None


def skip_or_fail():
    """Ends the test where there are no namespaces."""
    may_skip = not os.environ.get("DISTAG_CI")
    if os.geteuid() != 0:
        reason = "not root"
    elif missing := [command for command in ("ip", "tc", "nft") if shutil.which(command) is None]:
        reason = f"no command {missing[0]}: install iproute2 and nftables"
    else:
        reason = what_is_missing()
        if reason is None:
            return
        may_skip = may_skip or "not permitted" in reason
    print(f"skipped: {reason}")
    sys.exit(SKIPPED if may_skip else 1)


def run(checks):
    """(name, function) each, one after the other; the first that fails ends the test."""
    for name, check in checks:
        begun = time.monotonic()
        check()
        print(f"{name}: ok, {time.monotonic() - begun:.1f} s", flush=True)
