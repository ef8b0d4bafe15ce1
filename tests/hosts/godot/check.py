"""Godot runs the sample that trains, as its user starts it too: its library calls nothing that blocks in a frame, and
frames go on while the learner is stopped; a learner that is killed is missed once and trained with again; the game
leaves in the middle of a step; the library is loaded and unloaded ten times, and nothing is left of it. What frames
take of the processor is measured, and judges nothing.
usage: check.py SAMPLE DISTAG_COMMAND WORK_FOLDER BLOCKING..."""
import os
import re
import signal
import subprocess
import sys
import threading

SECONDS = 240  # only against hanging
PROGRESS = r"game: frame (\d+), step (\d+), loss ([\d.]+)"
LIMIT = 0.02  # of the loss, which begins above ten times as much
ROUNDS = 10


class Game:
    """A game, with its learner or alone, or a learner, and the lines that it prints."""

    all = []

    def __init__(self, command, **environment):
        environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", **environment)
        self.process = subprocess.Popen(command, env=environment, text=True, start_new_session=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines, self.alarm = [], threading.Timer(SECONDS, self.stop)
        self.alarm.daemon = True
        self.alarm.start()
        Game.all.append(self)

    def stop(self):
        """Ends all of it; `distag run` then leaves no file."""
        self.alarm.cancel()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)

    def until(self, pattern, holds=lambda match: True):
        """The match of the first line that fits."""
        for line in self.process.stdout:
            self.lines.append(line)
            match = re.search(pattern, line)
            if match and holds(match):
                return match
        sys.exit(f"no line is as {pattern}:\n{''.join(self.lines)}")

    def count(self, pattern):
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    def end(self):
        """The code with which it has ended."""
        self.lines += self.process.stdout.readlines()
        self.alarm.cancel()
        return self.process.wait()


def loss_below(limit):
    return lambda match: float(match[3]) < limit


def check_imports(library, blocking):
    """The library of the game can block in nothing but the shutdown, which it calls when it is unloaded."""
    listed = subprocess.run(["nm", "-D", "-u", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = set(re.findall(r"\bdistag_\w+", listed))
    assert "distag_worker_poll" in names, names
    assert names & set(blocking) == {"distag_worker_shutdown"}, names & set(blocking)


def start(folder):
    """As its user starts it, until Ctrl-C."""
    game = Game(["sh", os.path.join(folder, "run.sh")])
    game.until(PROGRESS)
    os.killpg(game.process.pid, signal.SIGINT)
    code = game.end()
    assert code == 130, (code, game.lines)


def stop(game, learner):
    """Stops the learner: the frames go on, and no step does."""
    os.kill(learner, signal.SIGSTOP)
    steps = [int(game.until(PROGRESS)[2])]
    while steps[-1:] != steps[-2:-1]:  # one step may have been under way
        steps.append(int(game.until(PROGRESS)[2]))
        assert len(steps) < 20, f"steps end without a learner: {steps}"


def train(distag, work):
    leave = os.path.join(work, "leave")
    choose = 'if [ "$RANK" = 0 ]; then exec godot3-server --path "$0/game" "$1"; else exec "$0/learner"; fi'
    game = Game([distag, "run", "-n", "2", "--restart", "3", "sh", "-c", choose, work, "res://measured.tscn"],
                LEAVE=leave)
    learner = int(game.until(r"learner (\d+)")[1])
    first = float(game.until(r"game: loss ([\d.]+) at first")[1])
    assert first > 10 * LIMIT, first
    trained = game.until(PROGRESS, loss_below(LIMIT))
    stop(game, learner)
    os.kill(learner, signal.SIGKILL)
    if not game.count("goes on without"):  # a learner that is stopped for long is lost by then
        game.until("goes on without the learner: (DISCONNECTED|PEER_RESTARTED)")
    game.until("trains again")
    again = game.until(PROGRESS, lambda match: loss_below(LIMIT)(match) and int(match[2]) > int(trained[2]))
    open(leave, "w").close()
    frames = game.until(r"game: leaves in a step after (\d+) frames, (\d+) sleeps, "
                        r"p50 ([\d.]+), p99 ([\d.]+), longest ([\d.]+) ms")
    code = game.end()
    assert code == 0, (code, game.lines)
    assert game.count("goes on without") == game.count("trains again") > 0, game.lines  # each loss is said once
    assert game.count("handles left") == 0, game.lines
    for name, number in (("p50", frames[3]), ("p99", frames[4]), ("longest", frames[5])):
        print(f"figure: frame_of_godot_{name} {number} ms")
    print(f"figure: frames_of_godot_per_step {int(trained[1]) / int(trained[2]):.2f} frames")
    print(f"figure: sleeps_of_godot_per_frame {int(frames[2]) / int(frames[1]):.4f} sleeps")
    print(f"loss {first} at first, {trained[3]} after {trained[2]} steps, {again[3]} after {again[2]} with another "
          f"learner, in {frames[1]} frames")


def reload(work):
    """One process of Godot trains with ten learners in turn, and unloads the library each time."""
    rounds = os.path.join(work, "rounds")
    for index in range(ROUNDS):
        os.makedirs(os.path.join(rounds, str(index)))
    game = Game(["godot3-server", "--path", os.path.join(work, "game"), "res://reload.tscn"], ROUNDS=rounds,
                DISTAG_RANK="0", DISTAG_WORLD_SIZE="2")
    for index in range(ROUNDS):
        place = os.path.join(rounds, str(index))
        game.until(f"game: round {index}")
        learner = Game([os.path.join(work, "learner")], DISTAG_RANK="1", DISTAG_WORLD_SIZE="2",
                       DISTAG_RENDEZVOUS="file://" + place)
        held = game.until(r"game: trained (\d+) steps, with \[(\d+), (\d+), (\d+)\] beside \[(\d+), (\d+), (\d+)\]")
        counts = [int(each) for each in held.groups()[1:]]
        assert all(held > before for held, before in zip(counts[:3], counts[3:])), held[0]
        game.until("game: nothing is left")
        assert learner.end() == 0, learner.lines
        os.rmdir(place)
    code = game.end()
    assert code == 0 and game.count("handles left") == 0, (code, game.lines)


def main():
    sample, distag, work, *blocking = sys.argv[1:]
    check_imports(os.path.join(work, "game", "liblearning.so"), blocking)
    try:
        start(sample)
        train(distag, work)
        reload(work)
    finally:
        for game in Game.all:
            game.stop()
    print("learned, and went on without a learner and after its end, without a blocking call; unloaded ten times")


if __name__ == "__main__":
    main()
