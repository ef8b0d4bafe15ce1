"""Hosts that train, each with samples/hosts/learner.c as its learner: they say the same in the same words, and a test
reads their lines."""
import atexit
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

SECONDS, BEGAN = 500, time.monotonic()  # a bound against hangs, below ctest's 600, which prints no output
GRACE = 20  # of a group that is ended; `distag run` kills its ranks after 5
TIMES = r"p50 (?P<p50>[\d.]+), p99 (?P<p99>[\d.]+), longest (?P<longest>[\d.]+) ms"  # of frames, of the processor


class Host:
    """A host called `name` with its learner, or one of them alone, and the lines that they print."""

    def __init__(self, name, command, **environment):
        self.process = subprocess.Popen(command, env=dict(os.environ, OPENBLAS_NUM_THREADS="1", **environment),
                                        text=True, start_new_session=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.name, self.lines, self.alarm = name, [], self.timer()
        self.alarm.daemon = True
        self.alarm.start()
        atexit.register(self.give_up)  # where a check fails
        self.progress = rf"{name}: frame (\d+), step (\d+), loss ([\d.]+)"

    def timer(self):
        return threading.Timer(max(1, BEGAN + SECONDS - time.monotonic()), self.give_up)

    @classmethod
    def run(cls, name, distag, learner, command, **environment):
        """Both under `distag run`. The learner starts once a line comes through the pipe beside it, if there is one."""
        choose = '[ "$RANK" = 0 ] && exec "$@"; [ ! -p "$0.gate" ] || read -r _ <"$0.gate"; exec "$0"'
        both = [distag, "run", "-n", "2", "--restart", "3", "sh", "-c", choose, learner, *command]
        host = cls(name, both, **environment)
        host.gate = learner + ".gate"
        return host

    def give_up(self):
        """Ends all of it, so that no line is waited for. `distag run` leaves no file where it is not killed."""
        self.alarm.cancel()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(self.process.pid, number)
                    self.process.wait(GRACE)

    def until(self, pattern, holds=lambda match: True):
        """The match of the first line that fits."""
        for line in self.process.stdout:
            self.lines.append(line)
            match = re.search(pattern, line)
            if match and holds(match):
                return match
        sys.exit(f"no line is as {pattern}:\n{''.join(self.lines)}")

    def find(self, pattern):
        """The match of the first line that fits, also among those that were read before."""
        return re.search(pattern, "".join(self.lines)) or self.until(pattern)

    def count(self, pattern):
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def check_gradients(self, limit):
        """Those of the first step are those of the whole model in one process, and its loss is far above the limit."""
        found = self.find(r"gradients of the first step differ by (\S+), the largest is (\S+), its loss ([\d.]+)")
        assert float(found[1]) < 1e-6 and float(found[2]) > 0.01, found[0]
        assert float(found[3]) > 2 * limit, found[0]

    def until_loss(self, limit, after_step=0):
        return self.until(self.progress, lambda match: float(match[3]) < limit and int(match[2]) > after_step)

    def stop(self, learner):
        """Stops the learner: the frames go on, and no step does."""
        os.kill(learner, signal.SIGSTOP)
        steps = [int(self.until(self.progress)[2])]
        while steps[-1:] != steps[-2:-1]:  # one step may have been under way
            steps.append(int(self.until(self.progress)[2]))
            assert len(steps) < 20, f"steps end without a learner: {steps}"

    def kill(self, learner):
        """Kills a learner that is stopped: the host misses it once, also where it tries in vain four times at least,
        and trains again with the next one."""
        os.mkfifo(self.gate)
        gate = os.open(self.gate, os.O_RDWR)  # does not wait for a reader
        os.kill(learner, signal.SIGKILL)
        self.find("goes on without the learner: (DISCONNECTED|PEER_RESTARTED)")  # maybe lost while it was stopped
        for _ in range(3):  # 1000 frames
            self.until(self.progress)
        os.remove(self.gate)
        os.write(gate, b"\n")
        os.close(gate)
        self.find("trains again")

    def lose_learner(self, learner, limit):
        """Trains, loses the learner, and trains with the next one: the lines of the loss below the limit."""
        trained = self.until_loss(limit)
        self.stop(learner)
        self.kill(learner)
        return trained, self.until_loss(limit, int(trained[2]))

    def leave(self, pid, last_line):
        """Ends the host by SIGINT, in whatever step it is; gives its line about its frames."""
        os.kill(pid, signal.SIGINT)
        return self.end(last_line)

    def end(self, last_line):
        found = self.until(last_line)
        self.finish()
        return found

    def finish(self, expected=0):
        """It ends by itself."""
        self.lines += self.process.stdout.readlines()
        code = self.process.wait()
        self.alarm.cancel()
        assert code == expected, (code, self.lines)

    def check_missed_once(self):
        assert self.count("goes on without") == self.count("trains again") == 1, self.lines


def start(name, folder):
    """The sample as its user starts it, until Ctrl-C."""
    host = Host(name, ["sh", os.path.join(folder, "run.sh")])
    host.until(host.progress)
    os.killpg(host.process.pid, signal.SIGINT)
    host.finish(130)


def tell_frames(engine, frames, trained):
    """Figures of a line that has the TIMES of frames, and of the line at which a loss was below its limit."""
    for name, number in frames.groupdict().items():
        print(f"figure: frame_of_{engine}_{name} {number} ms")
    print(f"figure: frames_of_{engine}_per_step {int(trained[1]) / int(trained[2]):.2f} frames")
