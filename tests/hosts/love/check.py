"""LOVE runs the sample that trains: a frame takes little of the processor and calls nothing that blocks; a learner that is
killed is missed once and trained with again; a game leaves in the middle of a step, and is restarted in one.
usage: check.py DISTAG_COMMAND LEARNER GAME RESTARTED_GAME BLOCKING..."""
import os
import re
import signal
import subprocess
import sys
import time

SECONDS = 100


class Game:
    """A game and its learner under `distag run`, and the lines that they print."""

    def __init__(self, distag, learner, folder, **environment):
        choose = 'if [ "$RANK" = 0 ]; then exec love "$0"; else exec "$1"; fi'
        self.process = subprocess.Popen([distag, "run", "-n", "2", "--restart", "3", "sh", "-c", choose, folder, learner],
                                        env=dict(os.environ, OPENBLAS_NUM_THREADS="1", **environment), text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines, self.deadline = [], time.monotonic() + SECONDS

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
        frames = self.until(r"game: (\d+) frames, p50 ([\d.]+), p99 ([\d.]+), longest ([\d.]+) ms")
        self.lines += self.process.stdout.readlines()
        code = self.process.wait(60)
        assert code == 0, (code, self.lines)
        return frames


def loss_below(limit):
    return lambda match: float(match[1]) < limit


def train(arguments):
    game = Game(*arguments)
    learner = int(game.until(r"learner (\d+)")[1])
    found = game.until(r"game: process (\d+), compiled (\w+)") if not game.count("game: process") else re.search(
        r"game: process (\d+), compiled (\w+)", "".join(game.lines))
    assert found[2] == "true", found[0]
    first = float(game.until(r"loss ([\d.]+)")[1])
    game.until(r"loss ([\d.]+)", loss_below(min(0.05, first)))
    os.kill(learner, signal.SIGKILL)
    game.until("goes on without the learner: (DISCONNECTED|PEER_RESTARTED)")
    game.until("trains again")
    game.until(r"loss ([\d.]+)", loss_below(0.05))
    frames = game.leave(int(found[1]))
    assert game.count("goes on without") == game.count("trains again") == 1, game.lines
    p50, p99, longest = (float(frames[index]) for index in (2, 3, 4))
    for name, number in (("p50", p50), ("p99", p99), ("longest", longest)):
        print(f"figure: frame_of_love_{name} {number} ms")
    assert p99 <= 1 and longest <= 5, frames[0]


def guard(arguments, blocking):
    game = Game(*arguments, DISTAG_GUARD=" ".join(blocking))
    game.until(r"loss ([\d.]+)")
    game.leave(int(re.search(r"game: process (\d+)", "".join(game.lines))[1]))


def restart(folder):
    done = subprocess.run(["love", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    threads = re.findall(r"game: (\d+) threads", done.stdout)
    assert done.returncode == 0 and len(threads) == 4 and len(set(threads)) == 1, (done.returncode, done.stdout)
    assert done.stdout.count("game: weight 0.9") == 4, done.stdout


def main():
    distag, learner, game, restarted, *blocking = sys.argv[1:]
    guard((distag, learner, game), blocking)
    train((distag, learner, game))
    restart(restarted)
    print("learned, and went on after a kill, without a blocking call; restarted three times")


if __name__ == "__main__":
    main()
