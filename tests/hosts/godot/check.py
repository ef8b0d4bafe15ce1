"""Godot runs the sample that trains, as its user starts it too: its library calls nothing that blocks in a frame, and
frames go on while the learner is stopped; a learner that is killed is missed once and trained with again; the game
leaves in the middle of a step; the library is loaded and unloaded ten times, and nothing is left of it. What frames
take of the processor is measured, and judges nothing.
usage: check.py SAMPLE DISTAG_COMMAND WORK_FOLDER BLOCKING..."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from training import TIMES, Host, start, tell_frames  # noqa: E402

LIMIT = 0.02  # of the loss, which begins above ten times as much
ROUNDS = 10
FRAMES = r"game: leaves in a step after (\d+) frames, (\d+) sleeps, " + TIMES


def command(work, scene):
    return ["godot3-server", "--path", os.path.join(work, "game"), "res://" + scene]


def check_imports(library, blocking):
    """The library of the game can block in nothing but the shutdown, which it calls when it is unloaded."""
    listed = subprocess.run(["nm", "-D", "-u", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = set(re.findall(r"\bdistag_\w+", listed))
    assert "distag_worker_poll" in names, names
    assert names & set(blocking) == {"distag_worker_shutdown"}, names & set(blocking)


def train(distag, work):
    leave = os.path.join(work, "leave")
    game = Host.run("game", distag, os.path.join(work, "learner"), command(work, "measured.tscn"), LEAVE=leave)
    learner = int(game.until(r"learner (\d+)")[1])
    first = float(game.find(r"game: loss ([\d.]+) at first")[1])
    assert first > 10 * LIMIT, first
    trained, again = game.lose_learner(learner, LIMIT)
    open(leave, "w").close()
    frames = game.end(FRAMES)
    game.check_missed_once()
    assert game.count("handles left") == 0, game.lines
    tell_frames("godot", frames, trained)
    print(f"figure: sleeps_of_godot_per_frame {int(frames[2]) / int(frames[1]):.4f} sleeps")
    print(f"loss {first} at first, {trained[3]} after {trained[2]} steps, {again[3]} after {again[2]} with another "
          f"learner, in {frames[1]} frames")


def reload(work):
    """One process of Godot trains with ten learners in turn, and unloads the library each time."""
    rounds = os.path.join(work, "rounds")
    for index in range(ROUNDS):
        os.makedirs(os.path.join(rounds, str(index)))
    game = Host("game", command(work, "reload.tscn"), ROUNDS=rounds, DISTAG_RANK="0", DISTAG_WORLD_SIZE="2")
    for index in range(ROUNDS):
        place = os.path.join(rounds, str(index))
        game.until(f"game: round {index}")
        learner = Host("learner", [os.path.join(work, "learner")], DISTAG_RANK="1", DISTAG_WORLD_SIZE="2",
                       DISTAG_RENDEZVOUS="file://" + place)
        held = game.until(r"game: trained (\d+) steps, with \[(\d+), (\d+), (\d+)\] beside \[(\d+), (\d+), (\d+)\]")
        counts = [int(each) for each in held.groups()[1:]]
        assert all(held > before for held, before in zip(counts[:3], counts[3:])), held[0]
        game.until("game: nothing is left")
        learner.finish()
        os.rmdir(place)
    game.finish()
    assert game.count("handles left") == 0, game.lines


def main():
    sample, distag, work, *blocking = sys.argv[1:]
    check_imports(os.path.join(work, "game", "liblearning.so"), blocking)
    start("game", sample)
    train(distag, work)
    reload(work)
    print("learned, and went on without a learner and after its end, without a blocking call; unloaded ten times")


if __name__ == "__main__":
    main()
