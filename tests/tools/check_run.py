"""What `distag run` promises: environment, prefixes, failures, signals. usage: check_run.py DISTAG"""
import os
import pty
import re
import select
import signal
import subprocess
import tempfile

from launched import DISTAG, LIMIT, Launched, equal, run_all, shells, skip_check

OTHERS_END = ": the others are ended\n"


def check_help():
    for command in ("run", "doctor", "version", "keygen"):
        for option in ("--help", "-h"):
            done = subprocess.run([DISTAG, command, option], capture_output=True, text=True, timeout=LIMIT, check=False)
            equal((done.returncode, done.stderr, done.stdout[:21]), (0, "", "usage: distag run -n "))


def check_environment():
    script = "echo $DISTAG_RANK $RANK of $DISTAG_WORLD_SIZE $WORLD_SIZE at $DISTAG_RENDEZVOUS $MASTER_ADDR $MASTER_PORT"
    code, lines, errors = shells(3, script).end()
    equal((code, errors), (0, ""))
    equal([line.split(" at ")[0] for line in lines], [f"[{rank}] {rank} {rank} of 3 3" for rank in range(3)])
    (where,) = {line.split(" at ")[1] for line in lines}
    rendezvous, address, port = where.split()
    assert rendezvous.startswith("file:///") and address == "127.0.0.1" and 0 < int(port) < 65536, where
    assert not os.path.exists(rendezvous.removeprefix("file://")), "the folder of the group is left"


def check_threads_of_blas():
    """One for each rank where nobody has set a number, which is said once."""
    script = "echo $OPENBLAS_NUM_THREADS $OMP_NUM_THREADS"
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    code, lines, errors = shells(2, script, env=clean).end()
    equal((code, lines), (0, ["[0] 1", "[1] 1"]))
    equal(errors, "distag run: OPENBLAS_NUM_THREADS=1 for each rank, as all share this machine; set it yourself for more\n")
    equal(shells(2, script, env={**clean, "OPENBLAS_NUM_THREADS": ""}).end()[1], ["[0] 1", "[1] 1"])
    equal(shells(2, script, env={**clean, "OPENBLAS_NUM_THREADS": "3"}).end(), (0, ["[0] 3", "[1] 3"], ""))
    equal(shells(2, script, env={**clean, "OMP_NUM_THREADS": "2"}).end(), (0, ["[0] 2", "[1] 2"], ""))
    equal(shells(1, script, env=clean).end(), (0, ["[0] "], ""))


def check_the_place_on_this_machine():
    script = "echo $LOCAL_RANK $DISTAG_LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK of $DISTAG_GROUP_WORLD_SIZE"
    outer = {"LOCAL_RANK": "7", "DISTAG_LOCAL_WORLD_SIZE": "9", "GROUP_RANK": "3", "DISTAG_RESTART_COUNT": "5"}
    equal(shells(2, script + " after $DISTAG_RESTART_COUNT", env={**os.environ, **outer}).end(),
          (0, ["[0] 0 0 of 2 on 0 of 1 after 0", "[1] 1 1 of 2 on 0 of 1 after 0"], ""))


def check_traces():
    with tempfile.TemporaryDirectory() as folder:
        traces = os.path.join(folder, "new", "traces")
        code, lines, errors = shells(2, "echo $DISTAG_TRACE", "--trace", traces).end()
        equal((code, lines, errors), (0, [f"[0] {traces}", f"[1] {traces}"], ""))
        assert os.path.isdir(traces), "the folder is not made"
        blocked = os.path.join(folder, "file")
        with open(blocked, "w", encoding="utf-8"):
            pass
        code, lines, errors = shells(1, "echo on", "--trace", blocked + "/traces").end()
        equal((code, lines), (0, ["[0] on"]))
        assert "nothing is traced" in errors, errors
        done = subprocess.run([DISTAG, "run", "-n", "1", "--trace", "", "true"], capture_output=True, text=True,
                              timeout=LIMIT, check=False)
        equal((done.returncode, "--trace is empty" in done.stderr), (2, True))


def check_a_launch_within_a_launch():
    """The variables of the outer group do not reach the ranks of the inner one."""
    names = {"DISTAG_RANK": "7", "DISTAG_MASTER_PORT": "1", "DISTAG_MASTER_ADDR": "far", "DISTAG_RENDEZVOUS": "file:///x"}
    script = "echo $DISTAG_RANK $DISTAG_MASTER_PORT$DISTAG_MASTER_ADDR $([ $DISTAG_RENDEZVOUS != file:///x ] && echo own)"
    code, lines, _ = shells(2, script, env={**os.environ, **names}).end()
    equal((code, lines), (0, ["[0] 0 own", "[1] 1 own"]))


def check_the_port_is_held_for_rank_0():
    """Nobody gets it by chance, and rank 0 can listen at it."""
    program = ("import os, socket; s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])));"
               "print(s.getsockname()[1] == int(os.environ['MASTER_PORT']))")
    code, lines, errors = Launched("-n", "1", "python3", "-c", program).end()
    equal((code, lines, errors), (0, ["[0] True"], ""))


def check_output_and_errors_stay_apart():
    code, lines, errors = shells(2, "echo out; echo bad >&2").end()
    equal((code, lines, sorted(errors.splitlines())), (0, ["[0] out", "[1] out"], ["[0] bad", "[1] bad"]))


def check_colour_on_a_terminal_only():
    for environment, prefix in (({"TERM": "xterm"}, b"\033[36m[0]\033[0m "), ({"NO_COLOR": "1"}, b"[0] "),
                                ({"TERM": "dumb"}, b"[0] ")):
        try:
            ours, theirs = pty.openpty()
        except OSError as error:
            skip_check(f"a terminal (/dev/pts): {error}")
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        subprocess.run([DISTAG, "run", "-n", "1", "echo", "x"], stdout=theirs, env={**clean, **environment}, check=True,
                       timeout=LIMIT)
        equal(os.read(ours, 100), prefix + b"x\r\n")
        os.close(ours)
        os.close(theirs)


def check_a_failure_ends_all():
    code, lines, errors = shells(3, "[ $RANK = 1 ] && exit 7; read x; echo survived").end()
    equal((code, lines, errors), (7, [], "distag run: rank 1 failed with code 7" + OTHERS_END))


def check_a_crash_ends_all():
    code, lines, errors = shells(3, "[ $RANK = 2 ] && kill -SEGV $$; read x; echo survived").end()
    equal((code, lines, errors), (128 + 11, [], "distag run: rank 2 was ended by SIGSEGV" + OTHERS_END))


def check_the_first_failure_counts():
    """Rank 0 fails because rank 1 has."""
    code, _, errors = shells(2, "[ $RANK = 1 ] && exit 7; trap 'exit 9' TERM; read x").end()
    equal((code, errors), (7, "distag run: rank 1 failed with code 7" + OTHERS_END))


def check_all_failures_are_told_at_the_end():
    """With what each said last, where they said something; who ended because it was told to is no failure. Rank 1 fails
    once rank 0 is ready to be told."""
    script = ("echo early >&2; [ $RANK = 1 ] && { read y <$READY; echo 'Error: no data' >&2; echo >&2; exit 7; };"
              "[ $RANK = 0 ] && { trap 'echo lost a peer >&2; exit 9' TERM; echo >$READY; }; read x")
    with tempfile.TemporaryDirectory() as folder:
        ready = os.path.join(folder, "ready")
        os.mkfifo(ready)
        code, _, errors = shells(3, script, "--grace", "120", env={**os.environ, "READY": ready}).end()
    block = errors[errors.index("distag run: the group failed"):].splitlines()
    host = os.uname().nodename
    equal(code, 7)
    equal([re.sub(r"process \d+", "process N", line) for line in block],
          ["distag run: the group failed; first",
           f"  rank 1 failed with code 7 (host {host}, process N)", "    its last words: Error: no data",
           "and then, having been told to end,",
           f"  rank 0 failed with code 9 (host {host}, process N)", "    its last words: lost a peer"])


def check_a_kill_says_whether_memory_was_short():
    """The kernel's own count is put in the place of /proc/vmstat, in a namespace of mounts."""
    with tempfile.NamedTemporaryFile("w", suffix=".vmstat") as counts:
        counts.write("nr_free_pages 5\noom_kill 41\n")
        counts.flush()
        if subprocess.run(["unshare", "-m", "mount", "--bind", counts.name, "/proc/vmstat"], capture_output=True,
                          check=False, timeout=LIMIT).returncode != 0:
            skip_check("a namespace of mounts")
        for script, expected in (("kill -KILL $$", "not by the kernel for want of memory"),
                                 (f"echo oom_kill 43 > {counts.name}; kill -KILL $$", "it has killed 2 process(es)")):
            inner = f"mount --bind {counts.name} /proc/vmstat && exec {DISTAG} run -n 1 sh -c '{script}'"
            done = subprocess.run(["unshare", "-m", "sh", "-c", inner], capture_output=True, text=True, check=False,
                                  timeout=LIMIT)
            equal(done.returncode, 128 + 9)
            assert "was ended by SIGKILL (host" in done.stderr and "): Killed" in done.stderr, done.stderr
            assert expected in done.stderr, done.stderr


def check_the_end_of_one_ends_none():
    launched = shells(3, "[ $RANK = 0 ] || read x; echo done")
    equal(launched.lines(1), ["[0] done\n"])
    output, _ = launched.process.communicate("\n\n", timeout=LIMIT)
    equal((launched.process.returncode, sorted(output.splitlines())), (0, ["[1] done", "[2] done"]))


def check_a_signal_ends_all():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        launched = shells(3, "ulimit -c 0; echo there; read x; echo survived")
        launched.lines(3)
        launched.process.send_signal(number)
        code, lines, errors = launched.end()
        equal((code, lines, errors), (128 + number, [], ""))


def check_a_signal_is_the_cause_also_of_a_clean_end():
    launched = shells(2, "trap 'echo saved; exit 0' TERM; echo there; while :; do read x; done")
    launched.lines(2)
    launched.process.send_signal(signal.SIGTERM)
    equal(launched.end(), (128 + 15, ["[0] saved", "[1] saved"], ""))


def check_other_signals_are_passed_on():
    launched = shells(2, "trap 'echo heard; exit 0' USR1; echo there; while :; do read x; done")
    launched.lines(2)
    launched.process.send_signal(signal.SIGUSR1)
    equal(launched.end(), (0, ["[0] heard", "[1] heard"], ""))


def check_killed_launcher_takes_its_ranks_along():
    """Each rank holds a pipe open, so its end means that none of them is left. Their input stays open, too."""
    held, holds = os.pipe()
    with tempfile.TemporaryDirectory() as own:
        launched = shells(3, "echo there; read x", env={**os.environ, "TMPDIR": own}, pass_fds=(holds,))
        os.close(holds)
        launched.lines(3)
        launched.process.kill()
        assert select.select([held], [], [], LIMIT)[0] and os.read(held, 1) == b"", "a rank is left"
        equal(launched.end(), (-9, [], ""))
    os.close(held)


def check_wrong_use():
    for arguments, code, message in (
            ([], 2, "-n is missing"), (["-n", "0", "true"], 2, '-n is "0"'), (["-n", "-1", "true"], 2, '-n is "-1"'),
            (["-n", "two", "true"], 2, '-n is "two"'), (["-n", "2x", "true"], 2, '-n is "2x"'),
            (["-n", "", "true"], 2, '-n is ""'), (["-n", "99999999999", "true"], 2, "from 1 to 65536"),
            (["-n"], 2, "requires an argument"), (["-n", "2"], 2, "name a program"), (["-n", "2", "--"], 2, "name a program"),
            (["-n", "2", "--restart", "x", "true"], 2, '--restart is "x"'), (["--nothing", "-n", "2", "true"], 2, "--nothing"),
            (["-n", "2", "./no/such"], 127, "./no/such: No such file"), (["-n", "2", "nosuchprogram"], 127, "nosuchprogram"),
            (["-n", "2", "/"], 126, "Permission denied"), (["-n", "2", "/etc/passwd"], 126, "Permission denied")):
        done = subprocess.run([DISTAG, "run", *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == code and message in done.stderr and done.stdout == "", (arguments, done)
    for arguments in ([], ["nothing"], ["doctor", "--nothing"], ["version", "x"]):
        done = subprocess.run([DISTAG, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 2 and "usage: distag" in done.stderr, (arguments, done)
    keygen, ps = "usage: distag keygen [--worker NAME FOLDER]\n", "usage: distag ps [--json] [--longer SECONDS]\n"
    checkpoint = "usage: distag checkpoint show|check DIRECTORY, or merge DIRECTORY FILE\n"
    why = "usage: distag why [WORKER] [--json] [--longer SECONDS]\n"
    report = "usage: distag report FOLDER [--text] [-o PAGE] [--merged FILE]\n"
    for words, told in (
            ("nothing", 'distag: "nothing" is no command\nusage: distag COMMAND ...; distag --help lists them\n'),
            ("doctor --json x", 'distag doctor: "x" is not known\nusage: distag doctor [--json]\n'),
            ("--version x", 'distag version: "x" is not known\nusage: distag version [--json]\n'),
            ("keygen --worker w0", "distag keygen: --worker wants a NAME and a FOLDER\n" + keygen),
            ("keygen w0", 'distag keygen: "w0" is not known\n' + keygen),
            ("checkpoint", "distag checkpoint: show, check or merge is missing\n" + checkpoint),
            ("checkpoint list x", 'distag checkpoint: "list" is not known\n' + checkpoint),
            ("checkpoint show", "distag checkpoint: show wants one DIRECTORY\n" + checkpoint),
            ("checkpoint merge x", "distag checkpoint: merge wants a DIRECTORY and a FILE\n" + checkpoint),
            ("report", "distag report: a FOLDER is missing\n" + report),
            ("report x y", 'distag report: "y" is not known\n' + report),
            ("report x -o", "distag report: -o wants the name of a file\n" + report),
            ("ps x", 'distag ps: "x" is not known\n' + ps),
            ("ps --longer", "distag ps: --longer wants seconds\n" + ps),
            ("ps --longer x", 'distag ps: --longer wants seconds from 0 to 1e9, not "x"\n' + ps),
            ("why a b", 'distag why: "b" is not known\n' + why),
            ("why --longer -1", 'distag why: --longer wants seconds from 0 to 1e9, not "-1"\n' + why),
            ("top x", 'distag top: "x" is not known\nusage: distag top\n')):
        done = subprocess.run([DISTAG, *words.split()], capture_output=True, text=True, timeout=LIMIT, check=False)
        equal((done.returncode, done.stdout, done.stderr), (2, "", told))
    done = subprocess.run([DISTAG, "-n"], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 2, done
    done = subprocess.run([DISTAG, "--help"], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert "usage: distag run -n N" in done.stdout, done


def check_options_end_at_the_program():
    equal(Launched("-n", "1", "printf", "%s|", "-n", "x", "--restart").end(), (0, ["[0] -n|x|--restart|"], ""))
    equal(Launched("-n1", "--", "echo", "--").end(), (0, ["[0] --"], ""))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        os.environ.pop("XDG_RUNTIME_DIR", None)
        run_all(dict(globals()))
