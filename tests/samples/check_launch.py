"""Checks samples/launch.c. usage: check_launch.py LAUNCH"""
import os
import signal
import subprocess
import sys


class Launched:
    """A launch of three shells. Each holds the output open, so its end means that none of them is left."""

    def __init__(self, launch, script):
        # The input stays open and empty: `read x` waits for as long as the test wants.
        self.process = subprocess.Popen([launch, "3", "sh", "-c", script], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, input_=None):
        """Code and output; a process that is left holds it up until the timeout."""
        if input_ is None:
            stdin, self.process.stdin = self.process.stdin, None
            output = self.process.communicate(timeout=60)
            stdin.close()
        else:
            output = self.process.communicate(input_, timeout=60)
        return self.process.returncode, *output


def check_environment(launch):
    code, output, _ = Launched(launch, "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT").end()
    lines = sorted(line.split(" at ") for line in output.splitlines())
    assert code == 0 and [line[0] for line in lines] == ["0 of 3", "1 of 3", "2 of 3"], (code, output)
    address = {line[1] for line in lines}
    assert len(address) == 1 and int(address.pop().removeprefix("127.0.0.1:")) > 0, output


def check_failure_ends_all(launch):
    code, output, _ = Launched(launch, "[ $RANK = 1 ] && exit 7; read x; echo $RANK survived").end()
    assert code == 7 and output == "", (code, output)


def check_crash_ends_all(launch):
    code, output, _ = Launched(launch, "[ $RANK = 2 ] && kill -SEGV $$; read x; echo $RANK survived").end()
    assert code == 128 + signal.SIGSEGV and output == "", (code, output)


def check_early_end_ends_none(launch):
    code, output, _ = Launched(launch, "[ $RANK = 0 ] || read x; echo $RANK done").end("\n\n")
    assert code == 0 and sorted(output.splitlines()) == ["0 done", "1 done", "2 done"], (code, output)


def check_signal_ends_all(launch, number):
    launched = Launched(launch, "echo there; read x; echo $RANK survived")
    for _ in range(3):
        assert launched.process.stdout.readline() == "there\n"
    os.kill(launched.process.pid, number)
    code, output, _ = launched.end()
    assert code == -number and output == "", (code, output)


def check_wrong_use(launch):
    for arguments, code, message in (([], 2, "usage"), (["0", "true"], 2, "usage"), (["2"], 2, "usage"),
                                     (["2", "/no/such/program"], 127, "/no/such/program")):
        done = subprocess.run([launch, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == code and message in done.stderr, (arguments, done)


def main():
    launch = sys.argv[1]
    check_environment(launch)
    check_failure_ends_all(launch)
    check_crash_ends_all(launch)
    check_early_end_ends_none(launch)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        check_signal_ends_all(launch, number)
    check_wrong_use(launch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
