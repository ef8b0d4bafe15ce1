"""A server of etcd in which the members of a cell meet."""
import base64
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.request

from cells import ETCD_DOWN, LONG_STOP

ANSWER_TIME = 120  # seconds
TRIES_PAUSE = 0.05
# The shell ends the server when its own standard input ends: also when the process that has started both is killed.
SHELL = """"$@" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait $! 2>/dev/null"""


def find_etcd():
    return shutil.which("etcd")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class Etcd:
    """One process, alone in its cluster."""

    def __init__(self, folder, ports):
        client, peer = (f"http://127.0.0.1:{port}" for port in ports)
        self.address = client
        self.command = [find_etcd(), "--name=e", "--data-dir=" + folder, "--listen-client-urls=" + client,
                        "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
                        "--initial-advertise-peer-urls=" + peer, "--initial-cluster=e=" + peer,
                        "--heartbeat-interval=20", "--election-timeout=200", "--logger=zap"]
        self.shell, self.pid = None, 0
        self.follower = None  # what mends the server once a fault has struck it
        self.start()

    def start(self):
        """Returns once it serves."""
        environment = {"ETCD_UNSUPPORTED_ARCH": "arm64"}  # which etcd 3.4 asks for there
        self.shell = subprocess.Popen(["/bin/sh", "-c", SHELL, "sh", *self.command], env=environment, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = int(self.shell.stdout.readline())
        while self.ask("/v3/maintenance/status", {}).get("leader") is None:
            try:
                self.shell.wait(TRIES_PAUSE)
                raise RuntimeError("etcd has ended")
            except subprocess.TimeoutExpired:
                pass

    def stop(self):
        self.shell.stdin.close()
        self.shell.wait()
        self.shell.stdout.close()

    def restart(self):
        self.stop()
        self.start()

    def follow(self, fault):
        """A member has struck it so."""
        if fault == "etcd-kill":
            self.follower = threading.Timer(ETCD_DOWN, self.restart)
        elif fault == "etcd-stop":
            self.follower = threading.Timer(LONG_STOP, os.kill, [self.pid, signal.SIGCONT])
        else:
            return
        self.follower.start()

    def await_mended(self):
        if self.follower:
            self.follower.join()

    def close(self):
        self.await_mended()
        self.stop()

    def ask(self, path, request):
        """The answer; empty where there is none."""
        asked = urllib.request.Request(self.address + path, json.dumps(request).encode(), method="POST")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(asked, timeout=ANSWER_TIME) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    def count_keys(self):
        self.await_mended()
        answer = self.ask("/v3/kv/range", {"key": encoded("\0"), "range_end": encoded("\0"), "count_only": True})
        return int(answer.get("count", 0)) if "header" in answer else "no answer about the"

    def revoke_leases(self):
        for lease in self.ask("/v3/lease/leases", {}).get("leases", []):
            self.ask("/v3/lease/revoke", lease)
