"""The members of a cell as processes."""
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from cells import LONG_STOP, SHORT_STOP
from etcd import Etcd

PATIENCE = 240  # seconds for an answer; who needs longer hangs


class Hang(Exception):
    pass


class Member:
    """One process. Its answers come one for each command; what it says of its fault is kept apart."""

    def __init__(self, group, name):
        self.group, self.name = group, name
        self.fault_at = None  # nanoseconds of the monotonic clock
        self.has_struck = threading.Event()
        self.said = ""  # on the standard error, and what was no answer
        self.lines = queue.Queue()
        self.has_ended = False
        cell = group.cell
        command = [group.program, str("ABC".index(name)), group.rendezvous, str(int(cell.lease() * 1000))]
        if cell.transport.startswith("tcp"):
            command += ["tcp://127.0.0.1:0"] + (["insecure"] if cell.transport == "tcp without keys" else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.PIPE, env=group.environment)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                self.said += f"no answer: {line}"
                continue
            if isinstance(answer, dict) and "fault" in answer:
                self.fault_at = answer["at"]
                self.has_struck.set()
                if self.group.etcd:
                    self.group.etcd.follow(answer["fault"])
                if answer["fault"] == "stop":
                    length = LONG_STOP if self.group.cell.fault == "long stop" else SHORT_STOP
                    threading.Thread(target=self.go_on_after, args=[length]).start()
                continue
            self.lines.put(answer)
        self.lines.put(None)

    def go_on_after(self, length):
        """A signal to go on that came before the stop would be lost, and it would stay stopped."""
        is_stopped = False
        while not is_stopped:
            is_stopped = self.state() == "T"
            try:
                self.process.wait(length if is_stopped else 0.01)
                return
            except subprocess.TimeoutExpired:
                pass
        self.process.send_signal(signal.SIGCONT)

    def state(self):
        """The letter that the kernel has for it; "": it is gone."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def tell(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer is None then

    def hear(self):
        """The next answer; None: the process has ended."""
        if self.has_ended:
            return None
        try:
            answer = self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise Hang(f"{self.name} does not answer within {PATIENCE} s") from None
        self.has_ended = answer is None
        return answer

    def ask(self, command):
        self.tell(command)
        return self.hear()

    def is_alive(self):
        return self.process.poll() is None

    def close(self):
        """The exit status. Kills a process that is still there."""
        if self.is_alive():
            try:
                self.process.wait(0.001 if self.process.stdin.closed else 60)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        self.reader.join()
        self.said += self.process.stderr.read()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        return self.process.returncode


class Ports:
    """Ports of the loopback: bound and not listening, so that nobody else is given them."""

    def __init__(self, count):
        self.sockets = [socket.socket() for _ in range(count)]
        for each in self.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        self.numbers = [each.getsockname()[1] for each in self.sockets]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.sockets:
            each.close()


class Group:
    """The members of a cell and their folder; and their etcd, where they meet in one."""

    def __init__(self, program, cell, ports):
        self.program, self.cell = program, cell
        self.folder = tempfile.mkdtemp(prefix="distag-faults-")
        self.temporary = os.path.join(self.folder, "tmp")
        self.files = os.path.join(self.folder, "group")
        for path in (self.temporary, self.files):
            os.mkdir(path)
        self.rendezvous = f"tcp://127.0.0.1:{ports[0]}" if cell.phase == "join" else "file://" + self.files
        self.etcd = None
        self.environment = {key: value for key, value in os.environ.items()
                            if key == "DISTAG_MUTANT" or not key.startswith(("DISTAG_", "XDG_"))}
        self.environment.update(TMPDIR=self.temporary, XDG_STATE_HOME=self.folder, OPENBLAS_NUM_THREADS="1")
        if cell.transport == "ipc":
            self.environment["DISTAG_LANE"] = "0"
        if cell.is_zmtp():
            self.environment["DISTAG_SOCKET_ENGINE"] = "zmtp"
        if cell.transport.startswith("tcp with a key"):
            key = os.path.join(self.folder, "key")
            with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write("a key that only these processes have, for a minute\n")
            self.environment["DISTAG_GROUP_KEY_FILE"] = key
        if cell.meets_in_etcd():
            self.etcd = Etcd(os.path.join(self.folder, "etcd"), ports)
            self.rendezvous = f"etcd://127.0.0.1:{ports[0]}/faults"
            self.environment["FAULTS_ETCD"] = str(self.etcd.pid)
        self.members = {name: Member(self, name) for name in "ABC"}
        self.all_members = list(self.members.values())

    def replace(self, name):
        self.members[name] = Member(self, name)
        self.all_members.append(self.members[name])
        return self.members[name]

    def ask_all(self, command, names="ABC"):
        """All are asked at once. {name: answer}."""
        for name in names:
            self.members[name].tell(command)
        return {name: self.members[name].hear() for name in names}

    def files_left(self):
        shared = [name for name in os.listdir("/dev/shm") if "distag" in name]
        return sorted(os.listdir(self.temporary)) + sorted(os.listdir(self.files)) + shared

    def close(self):
        for member in self.all_members:
            if member.is_alive():
                member.process.send_signal(signal.SIGCONT)
            if not member.process.stdout.closed:
                member.close()
        if self.etcd:
            self.etcd.close()
        shutil.rmtree(self.folder)


def wait_until_dead(member):
    """Of one that kills itself."""
    deadline = time.monotonic() + PATIENCE
    try:
        return member.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Hang(f"{member.name} is not dead") from None
