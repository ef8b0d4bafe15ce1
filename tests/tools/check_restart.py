"""`distag run --restart K`: a rank that fails is started again with the same environment, and the others go on.
usage: check_restart.py DISTAG ELASTIC_RANK"""
import os
import sys
import tempfile

from launched import Launched, equal, run_all, shells

COUNT = 'n=$(cat "$COUNTS/$RANK" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >"$COUNTS/$RANK"; '


def counted(count, script, *arguments):
    """Ranks that know how often they were started: $n."""
    with tempfile.TemporaryDirectory() as counts:
        return shells(count, COUNT + script, *arguments, env={**os.environ, "COUNTS": counts}).end()


def check_it_comes_back_with_the_same_environment():
    code, lines, errors = counted(2, "[ $DISTAG_RESTART_COUNT = $((n - 1)) ] || exit 9; "
                                  "echo $n $MASTER_PORT $DISTAG_RENDEZVOUS; [ $RANK = 0 ] || [ $n = 3 ] || exit 4",
                                  "--restart", "2")
    equal((code, [line[:5] for line in lines]), (0, ["[0] 1", "[1] 1", "[1] 2", "[1] 3"]))
    equal(len({line.split(" ", 2)[2] for line in lines}), 1)
    equal(errors.splitlines(), [f"distag run: rank 1 failed with code 4: it is started again ({time} of 2)" for time in (1, 2)])


def check_the_last_failure_counts():
    code, lines, errors = counted(2, "[ $RANK = 0 ] && read x; echo $n; exit $n", "--restart", "2")
    equal((code, lines), (3, ["[1] 1", "[1] 2", "[1] 3"]))
    equal(errors.splitlines()[-1], "distag run: rank 1 failed with code 3: the others are ended")


def check_each_rank_has_its_own_count():
    code, lines, _ = counted(3, "echo $n; [ $n = 2 ] || kill -KILL $$", "--restart", "1")
    equal((code, lines), (0, [f"[{rank}] {n}" for rank in range(3) for n in (1, 2)]))


def check_what_ended_well_is_not_started_again():
    equal(counted(2, "echo $n", "--restart", "5"), (0, ["[0] 1", "[1] 1"], ""))


def check_workers_meet_again():
    """Rank 0 as well as rank 1 may be the one that is lost: the other one calls its next incarnation."""
    for lost in (0, 1):
        with tempfile.TemporaryDirectory() as counts:
            code, lines, errors = Launched("-n", "2", "--restart", "1", sys.argv[2], str(lost), counts).end()
        equal((code, lines), (0, [f"[{1 - lost}] the first: 2", f"[{1 - lost}] the second: 2"]))
        equal(errors, f"distag run: rank {lost} was ended by SIGKILL: it is started again (1 of 1)\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        os.environ.pop("XDG_RUNTIME_DIR", None)
        run_all(dict(globals()))
