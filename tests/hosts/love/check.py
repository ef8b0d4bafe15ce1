"""LOVE runs the sample that trains, as its user starts it too: a frame calls nothing that blocks, and frames go on while the
learner is stopped; a learner that is killed is missed once and trained with again; a game leaves in the middle of a step, and
is restarted in one. What frames take of the processor is measured, and judges nothing.
usage: check.py SAMPLE DISTAG_COMMAND LEARNER GAME RESTARTED_GAME BLOCKING..."""
import os
import re
import signal
import subprocess
import sys
import time

SECONDS = 240  # only against hanging
PROGRESS = r"game: frame (\d+), step (\d+), loss ([\d.]+)"


class Game:
    """A game and its learner, and the lines that they print."""

    def __init__(self, command, **environment):
        self.process = subprocess.Popen(command, env=dict(os.environ, OPENBLAS_NUM_THREADS="1", **environment), text=True,
                                        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines, self.deadline = [], time.monotonic() + SECONDS

    @classmethod
    def run(cls, distag, learner, folder, **environment):
        """Both under `distag run`."""
        choose = 'if [ "$RANK" = 0 ]; then exec love "$0"; else exec "$1"; fi'
        return cls([distag, "run", "-n", "2", "--restart", "3", "sh", "-c", choose, folder, learner], **environment)

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

    def count(self, pattern):
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def leave(self, pid):
        """Ends the game as a window's cross does, in whatever step it is; gives its line about its frames."""
        os.kill(pid, signal.SIGINT)
        frames = self.until(r"game: (\d+) frames, (\d+) calls of C, p50 ([\d.]+), p99 ([\d.]+), longest ([\d.]+) ms")
        self.lines += self.process.stdout.readlines()
        code = self.process.wait(60)
        assert code == 0, (code, self.lines)
        return frames


def loss_below(limit):
    return lambda match: float(match[3]) < limit


def start(folder):
    """As its user starts it, until Ctrl-C."""
    game = Game(["sh", os.path.join(folder, "run.sh")])
    game.until(PROGRESS)
    os.killpg(game.process.pid, signal.SIGINT)
    game.lines += game.process.stdout.readlines()
    assert game.process.wait(SECONDS) == 130, (game.process.returncode, game.lines)


def stop(game, learner):
    """Stops the learner: the frames go on, and no step does."""
    os.kill(learner, signal.SIGSTOP)
    steps = [int(game.until(PROGRESS)[2])]
    while steps[-1:] != steps[-2:-1]:  # one step may have been under way
        steps.append(int(game.until(PROGRESS)[2]))
        assert len(steps) < 20, f"steps end without a learner: {steps}"


def train(arguments):
    game = Game.run(*arguments)
    learner = int(game.until(r"learner (\d+)")[1])
    found = game.until(r"game: process (\d+), compiled (\w+)") if not game.count("game: process") else re.search(
        r"game: process (\d+), compiled (\w+)", "".join(game.lines))
    assert found[2] == "true", found[0]
    first = float(game.until(PROGRESS)[3])
    trained = game.until(PROGRESS, loss_below(min(0.05, first)))
    stop(game, learner)
    os.kill(learner, signal.SIGKILL)
    if not game.count("goes on without"):  # a learner that is stopped for long is lost by then
        game.until("goes on without the learner: (DISCONNECTED|PEER_RESTARTED)")
    game.until("trains again")
    game.until(PROGRESS, lambda match: loss_below(0.05)(match) and int(match[2]) > int(trained[2]))
    frames = game.leave(int(found[1]))
    assert game.count("goes on without") == game.count("trains again") == 1, game.lines
    for name, number in (("p50", frames[3]), ("p99", frames[4]), ("longest", frames[5])):
        print(f"figure: frame_of_love_{name} {number} ms")
    per_step = int(trained[1]) / int(trained[2])
    print(f"figure: frames_of_love_per_step {per_step:.2f} frames")


def guard(arguments, blocking):
    """No frame calls what may block."""
    game = Game.run(*arguments, DISTAG_GUARD=" ".join(blocking))
    game.until(PROGRESS)
    frames = game.leave(int(re.search(r"game: process (\d+)", "".join(game.lines))[1]))
    print(f"figure: calls_of_frame_of_love {int(frames[2]) / int(frames[1]):.1f} calls")


def restart(folder):
    done = subprocess.run(["love", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    threads = re.findall(r"game: (\d+) threads", done.stdout)
    assert done.returncode == 0 and len(threads) == 4 and len(set(threads)) == 1, (done.returncode, done.stdout)
    assert done.stdout.count("game: weight 0.9") == 4, done.stdout


def main():
    sample, distag, learner, game, restarted, *blocking = sys.argv[1:]
    start(sample)
    guard((distag, learner, game), blocking)
    train((distag, learner, game))
    restart(restarted)
    print("learned, and went on without a learner and after its end, without a blocking call; restarted three times")


if __name__ == "__main__":
    main()
