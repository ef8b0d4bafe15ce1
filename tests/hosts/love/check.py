"""LOVE runs the sample that trains, as its user starts it too: a frame calls nothing that blocks, and frames go on
while the learner is stopped; a learner that is killed is missed once and trained with again; a game leaves in the
middle of a step, and is restarted in one. What frames take of the processor is measured, and judges nothing.
usage: check.py SAMPLE DISTAG_COMMAND LEARNER GAME RESTARTED_GAME BLOCKING..."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from training import SECONDS, TIMES, Host, start, tell_frames  # noqa: E402

LIMIT = 0.05
FRAMES = r"game: (\d+) frames, (\d+) calls of C, " + TIMES


def run(distag, learner, game, **environment):
    return Host.run("game", distag, learner, ["love", game], **environment)


def train(arguments):
    game = run(*arguments)
    learner = int(game.until(r"learner (\d+)")[1])
    found = game.find(r"game: process (\d+), compiled (\w+)")
    assert found[2] == "true", found[0]
    first = float(game.until(game.progress)[3])
    trained, _ = game.lose_learner(learner, min(LIMIT, first))
    frames = game.leave(int(found[1]), FRAMES)
    game.check_missed_once()
    tell_frames("love", frames, trained)


def guard(arguments, blocking):
    """No frame calls what may block."""
    game = run(*arguments, DISTAG_GUARD=" ".join(blocking))
    game.until(game.progress)
    frames = game.leave(int(game.find(r"game: process (\d+)")[1]), FRAMES)
    print(f"figure: calls_of_frame_of_love {int(frames[2]) / int(frames[1]):.1f} calls")


def restart(folder):
    done = subprocess.run(["love", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS)
    threads = re.findall(r"game: (\d+) threads", done.stdout)
    assert done.returncode == 0 and len(threads) == 4 and len(set(threads)) == 1, (done.returncode, done.stdout)
    assert done.stdout.count("game: weight 0.9") == 4, done.stdout


def main():
    sample, distag, learner, game, restarted, *blocking = sys.argv[1:]
    start("game", sample)
    guard((distag, learner, game), blocking)
    train((distag, learner, game))
    restart(restarted)
    print("learned, and went on without a learner and after its end, without a blocking call; restarted three times")


if __name__ == "__main__":
    main()
