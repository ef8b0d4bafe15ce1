"""Hosts that train, each with samples/hosts/learner.c as its learner: they say the same in the same words, and a test
reads their lines."""
import atexit
import os
import re
import signal
import subprocess
import sys
import time

SECONDS = 240  # only against hanging


class Host:
    """A host called `name` and its learner, and the lines that they print."""

    def __init__(self, name, command, **environment):
        self.process = subprocess.Popen(command, env=dict(os.environ, OPENBLAS_NUM_THREADS="1", **environment),
                                        text=True, start_new_session=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        atexit.register(self.process.kill)  # where a check fails; without its launcher a group ends
        self.name, self.lines, self.deadline = name, [], time.monotonic() + SECONDS
        self.progress = rf"{name}: frame (\d+), step (\d+), loss ([\d.]+)"

    @classmethod
    def run(cls, name, distag, learner, command, **environment):
        """Both under `distag run`."""
        choose = '[ "$RANK" = 0 ] || exec "$0"; exec "$@"'
        both = [distag, "run", "-n", "2", "--restart", "3", "sh", "-c", choose, learner, *command]
        return cls(name, both, **environment)

    def until(self, pattern, holds=lambda match: True):
        """The match of the first line that fits."""
        for line in self.process.stdout:
            self.lines.append(line)
            match = re.search(pattern, line)
            if match and holds(match):
                return match
            if time.monotonic() > self.deadline:
                break
        self.process.kill()
        sys.exit(f"no line is as {pattern}:\n{''.join(self.lines)}")

    def find(self, pattern):
        """The match of the first line that fits, also among those that were read before."""
        return re.search(pattern, "".join(self.lines)) or self.until(pattern)

    def count(self, pattern):
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def until_loss(self, limit, after_step=0):
        return self.until(self.progress, lambda match: float(match[3]) < limit and int(match[2]) > after_step)

    def stop(self, learner):
        """Stops the learner: the frames go on, and no step does."""
        os.kill(learner, signal.SIGSTOP)
        steps = [int(self.until(self.progress)[2])]
        while steps[-1:] != steps[-2:-1]:  # one step may have been under way
            steps.append(int(self.until(self.progress)[2]))
            assert len(steps) < 20, f"steps end without a learner: {steps}"

    def kill(self, learner, meanwhile=lambda: None):
        """Kills a learner that is stopped: the host misses it once, and trains again with the next one."""
        os.kill(learner, signal.SIGKILL)
        self.find("goes on without the learner: (DISCONNECTED|PEER_RESTARTED)")  # maybe lost while it was stopped
        meanwhile()
        self.find("trains again")

    def leave(self, pid, last_line):
        """Ends the host by SIGINT, in whatever step it is; gives its line about its frames."""
        os.kill(pid, signal.SIGINT)
        return self.end(last_line)

    def end(self, last_line):
        found = self.until(last_line)
        self.lines += self.process.stdout.readlines()
        code = self.process.wait(60)
        assert code == 0, (code, self.lines)
        return found


def start(name, folder):
    """The sample as its user starts it, until Ctrl-C."""
    host = Host(name, ["sh", os.path.join(folder, "run.sh")])
    host.until(host.progress)
    os.killpg(host.process.pid, signal.SIGINT)
    host.lines += host.process.stdout.readlines()
    assert host.process.wait(SECONDS) == 130, (host.process.returncode, host.lines)
