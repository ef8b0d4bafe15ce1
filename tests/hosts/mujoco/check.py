"""The sample of MuJoCo trains, as its user starts it too: a step of physics calls nothing that blocks, and physics goes
on while the learner is stopped; a learner that is killed is missed once and trained with again; the gradients are those
of the whole model in one process; the program is left in each part of a step of training. The times that steps of
physics take of the processor are told, and judge nothing.
usage: check.py SAMPLE DISTAG_COMMAND LEARNER ROBOT"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from training import TIMES, Host, start, tell_frames  # noqa: E402

LIMIT = 0.02  # mean square of the force's error; that of an untrained policy is about 0.5
FRAMES = rf"robot: (\d+) frames, (\d+) calls of C, (\d+) block, {TIMES}, (\d+) slept"
LEFT = r"robot: left with 0: 0 threads, 0 descriptors, 0 handles, (\d+) steps under way"
# Where the program is left: while its worker starts, and in each part of a step of training.
PARTS = ("distag_remote", "distag_context_create", "distag_backward_async", "distag_optimizer_step_async")
TRIES = 5  # an answer may come between the signal and the end of the loop: the step is over then


def train(distag, learner, robot):
    host = Host.run("robot", distag, learner, robot)
    first_learner = int(host.until(r"learner (\d+)")[1])
    host.check_gradients(LIMIT)
    trained, _ = host.lose_learner(first_learner, LIMIT)
    frames = host.leave(int(host.find(r"robot: process (\d+)")[1]), FRAMES)
    assert host.count(LEFT) == 1 and int(frames[3]) == 0, host.lines
    host.check_missed_once()
    tell_frames("mujoco", frames, trained)
    print(f"figure: frames_of_mujoco {frames[1]} frames")
    print(f"figure: frames_of_mujoco_that_slept {frames[7]} frames")
    print(f"figure: calls_of_frame_of_mujoco {int(frames[2]) / int(frames[1]):.1f} calls")


def leave_in(part, distag, learner, robot):
    """Gives the number of tries that it took to leave in the middle of a step."""
    for tries in range(1, TRIES + 1):
        host = Host.run("robot", distag, learner, robot, LEAVE_IN=part)
        if host.end(LEFT)[1] == "1":
            return tries
    sys.exit(f"{TRIES} times a step was over before the program was left in {part}")


def leave_in_start(distag, robot):
    """Nothing comes to meet it."""
    host = Host.run("robot", distag, "true", robot, LEAVE_IN="distag_worker_start_async")
    assert host.end(LEFT)[1] == "0", host.lines


def main():
    sample, distag, learner, robot = sys.argv[1:]
    command = [robot, os.path.join(sample, "cart_and_pole.xml")]
    start("robot", sample)
    train(distag, learner, command)
    leave_in_start(distag, command)
    tries = [leave_in(part, distag, learner, command) for part in PARTS]
    print("learned, and went on without a learner and after its end, without a blocking call; left in "
          f"{len(tries)} parts of a step, in {sum(tries)} tries")


if __name__ == "__main__":
    main()
