"""What `distag run` does on a bad day: ranks that do not end, output that nobody takes, lines that do not end.
usage: check_bad_days.py DISTAG"""
import fcntl
import os
import resource
import signal
import subprocess
import tempfile

from launched import DISTAG, LIMIT, Launched, equal, run_all, shells

PIECE = 64 << 10


def check_a_rank_that_ignores_sigterm_is_killed():
    quiet, held = os.pipe()  # which nobody writes to
    script = f"[ $RANK = 1 ] && read x && exit 3; trap '' TERM; echo there; read x <&{quiet}"
    launched = shells(2, script, "--grace", "0", pass_fds=(quiet,))
    equal(launched.lines(1), ["[0] there\n"])
    output, errors = launched.process.communicate("\n", timeout=LIMIT)
    equal((launched.process.returncode, output), (3, ""))
    equal(errors.splitlines(), ["distag run: rank 1 failed with code 3: the others are ended",
                                "distag run: rank 0 did not end within 0 s: it is killed"])
    os.close(quiet)
    os.close(held)


def check_the_grace_is_waited_for():
    """A rank that takes the time it is given ends by itself."""
    launched = shells(1, "trap 'echo saving; read x; exit 0' TERM; echo there; while :; do read x; done", "--grace", "50")
    launched.lines(1)
    launched.process.send_signal(signal.SIGTERM)
    equal(launched.lines(1), ["[0] saving\n"])
    output, errors = launched.process.communicate("\n", timeout=LIMIT)
    equal((launched.process.returncode, output, errors), (128 + 15, "", ""))


def check_ctrl_c_twice_kills():
    launched = shells(2, "trap 'echo first' INT; echo there; while :; do read x; done", "--grace", "1000")
    launched.lines(2)
    launched.process.send_signal(signal.SIGINT)
    equal(launched.lines(2), ["[0] first\n", "[1] first\n"])
    launched.process.send_signal(signal.SIGINT)
    code, _, errors = launched.end()
    equal((code, errors.count("it is killed")), (128 + 2, 2))


def check_output_that_is_closed_ends_all():
    launched = shells(2, "while echo x; do :; done")
    launched.process.stdout.readline()
    launched.process.stdout.close()
    equal(launched.process.wait(LIMIT), 128 + signal.SIGPIPE)


def check_output_that_is_closed_from_the_start():
    done = subprocess.run(["sh", "-c", f"'{DISTAG}' run -n 2 sh -c 'echo x; echo y >&2; exit 5' >&- 2>&- <&-"],
                          timeout=LIMIT, check=False)
    equal(done.returncode, 5)


def check_a_full_disk_is_told():
    with open("/dev/full", "w", encoding="utf-8") as full:
        code, _, errors = shells(1, "echo x; read x", stdout=full).end()
    equal((code, errors), (1, "distag run: the output cannot be written: No space left on device\n"))


def check_a_reader_who_stops_holds_up_no_signal():
    """The pipe is full, as nobody reads: the launcher takes what the rank prints all the same, hears signals, and leaves
    what nobody takes at the second one."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)
    launched = shells(1, "seq 100000 | head -c 500000; echo there >&2; read x", stdout=writing)
    equal(launched.process.stderr.readline(), "[0] there\n")
    launched.process.send_signal(signal.SIGINT)
    launched.process.send_signal(signal.SIGTERM)
    equal(launched.process.wait(LIMIT), 128 + 2)
    os.close(writing)
    assert os.read(reading, 100).startswith(b"[0] 1\n[0] 2\n")
    os.close(reading)


def check_long_lines_are_cut():
    script = "head -c {} /dev/zero | tr '\\0' x; echo; echo next"
    for size, pieces in ((PIECE, [PIECE]), (PIECE + 1, [PIECE, 1]), (3 * PIECE, [PIECE] * 3), (200000, [PIECE] * 3 + [3392])):
        launched = shells(1, script.format(size))
        output, errors = launched.process.communicate(timeout=LIMIT)
        equal(([len(line) - len("[0] ") for line in output.splitlines()], errors), (pieces + [len("next")], ""))


def check_a_last_line_without_its_end():
    output, _ = shells(1, "printf 'a\\n\\nb'").process.communicate(timeout=LIMIT)
    equal(output, "[0] a\n[0] \n[0] b\n")


def check_bytes_pass_unchanged():
    done = subprocess.run([DISTAG, "run", "-n", "1", "printf", r"\377\000\303\n"], capture_output=True, timeout=LIMIT, check=True)
    equal(done.stdout, b"[0] \xff\x00\xc3\n")


def check_lines_of_two_ranks_stay_whole():
    """Each rank writes its lines in two pieces, in turns with the others."""
    script = "i=0; while [ $i -lt 300 ]; do printf $RANK$RANK; printf \"$RANK$RANK\\n\"; i=$((i + 1)); done"
    code, lines, _ = shells(4, script).end()
    equal((code, lines), (0, [f"[{rank}] {str(rank) * 4}" for rank in range(4) for _ in range(300)]))


def check_nothing_is_lost():
    code, lines, _ = shells(4, "seq 20000").end()
    equal((code, len(lines), len(set(lines))), (0, 80000, 80000))


def check_grandchildren_end_with_their_rank():
    """They hold the output open."""
    equal(shells(2, "cat & echo done").end(), (0, ["[0] done", "[1] done"], ""))


def check_grandchildren_that_left_the_group_are_not_waited_for():
    """One holds the output open when its rank ends, and lives until the test writes to it."""
    (waits, stop), (hears, tell), (held, holds) = os.pipe(), os.pipe(), os.pipe()
    script = f"setsid sh -c 'echo free >&{tell}; read x <&{waits}' & read y <&{hears}; echo done"
    launched = Launched("-n", "1", "sh", "-c", script, pass_fds=(waits, tell, hears, holds))
    os.close(holds)
    equal(launched.process.wait(LIMIT), 0)
    equal(launched.process.communicate(timeout=LIMIT), ("[0] done\n", ""))
    os.write(stop, b"\n")
    equal(os.read(held, 1), b"")  # it has ended
    for each in (waits, stop, hears, tell, held):
        os.close(each)


def check_a_signal_reaches_grandchildren():
    """The rank itself ends at once, what it started takes its time."""
    launched = shells(1, "sh -c 'trap \"echo heard; exit 0\" TERM; echo there; while :; do read x; done'; :")
    launched.lines(1)
    launched.process.send_signal(signal.SIGTERM)
    code, lines, _ = launched.end()
    equal((code, lines), (128 + 15, ["[0] heard"]))


def check_grandchildren_that_do_not_end_are_killed():
    quiet, held = os.pipe()  # which nobody writes to
    script = f"sh -c \"trap '' TERM; echo there; read x <&{quiet}\" & read y; exit 0"
    launched = shells(1, script, "--grace", "0", pass_fds=(quiet,))
    equal(launched.lines(1), ["[0] there\n"])
    output, errors = launched.process.communicate("\n", timeout=LIMIT)
    equal((launched.process.returncode, output), (0, ""))
    equal(errors, "distag run: what was started by rank 0 did not end within 0 s: it is killed\n")
    os.close(quiet)
    os.close(held)


def check_stop_and_go_on():
    launched = shells(2, "trap 'echo on' CONT; echo there; while :; do read x; done")
    launched.lines(2)
    launched.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(launched.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status
    launched.process.send_signal(signal.SIGCONT)
    equal(launched.lines(2), ["[0] on\n", "[1] on\n"])
    launched.process.send_signal(signal.SIGTERM)
    equal(launched.end()[0], 128 + 15)


def check_256_ranks():
    """More descriptors than a process has by default; the ranks get the limit that was there."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = (128, limit[1])
    code, lines, errors = shells(256, "echo $RANK $(ulimit -Sn)", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)).end()
    equal((code, errors), (0, ""))
    equal(lines, sorted(f"[{rank}] {rank} 128" for rank in range(256)))


def check_descriptors_that_do_not_suffice_are_told_first():
    code, lines, errors = shells(256, "echo x", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))).end()
    equal((code, lines), (1, []))
    equal(errors, "distag run: 256 ranks need 528 descriptors, the limit is 128: raise it (ulimit -Hn)\n")


def check_ranks_get_no_descriptor_of_the_launcher():
    code, lines, _ = Launched("-n", "3", "sh", "-c", "ls /proc/self/fd | tr '\\n' ' '").end()
    equal((code, lines), (0, [f"[{rank}] 0 1 2 3 " for rank in range(3)]))


def check_no_folder_can_be_made():
    # Root can write anywhere, but not below a file.
    with tempfile.NamedTemporaryFile() as file:
        unusable = {**os.environ, "TMPDIR": file.name}
        done = subprocess.run([DISTAG, "run", "-n", "1", "true"], env=unusable, capture_output=True, text=True, timeout=LIMIT, check=False)
        equal((done.returncode, done.stderr), (0, ""))  # the next folder is taken


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        os.environ.pop("XDG_RUNTIME_DIR", None)
        run_all(dict(globals()))
