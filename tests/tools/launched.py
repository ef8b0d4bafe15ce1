"""Runs `distag run` for the tests beside it."""
import os
import subprocess
import sys

DISTAG = sys.argv[1]
LIMIT = 240  # seconds, only against hanging


class Launched:
    """A launch of ranks. Their output is the test's; the input stays open and empty: `read x` waits for as long as the
    test wants."""

    def __init__(self, *arguments, **options):
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([DISTAG, "run", *arguments], text=True, **{**streams, **options})

    def lines(self, count):
        return sorted(self.process.stdout.readline() for _ in range(count))

    def end(self):
        """Code, sorted lines of the output and text of the errors, with the input still open."""
        stdin, self.process.stdin = self.process.stdin, None
        output, errors = self.process.communicate(timeout=LIMIT)
        if stdin is not None:
            stdin.close()
        return self.process.returncode, sorted((output or "").splitlines()), errors


def shells(count, script, *arguments, **options):
    return Launched("-n", str(count), *arguments, "--", "sh", "-c", script, **options)


def equal(seen, expected):
    assert seen == expected, f"{seen!r} is not {expected!r}"


def skip_check(missing):
    """Leaves out the check that asks, for what is missing on this machine; a failure where DISTAG_CI is set."""
    assert not os.environ.get("DISTAG_CI"), f"missing: {missing}"
    raise Skipped(missing)


class Skipped(Exception):
    """A check that this machine cannot run."""


def hide_workers_of_others():
    """Runs the calling program anew where ps and why see the workers of this test alone, if the machine allows it: with
    empty folders of its own in the place of those in which workers are found."""
    bases = [base for base in ("/tmp", f"/run/user/{os.geteuid()}") if os.path.isdir(base)]
    program = [sys.executable, "-B", *map(os.path.realpath, sys.argv[:2]), *sys.argv[2:]]
    if os.environ.get("DISTAG_TEST_ALONE") or any(os.path.realpath(path).startswith("/tmp/") for path in sys.argv[:2]):
        return
    mounts = " && ".join(f"mount -t tmpfs -o mode=700,size=64m distag-test {base}" for base in bases)
    alone = ["unshare", "--mount", "sh", "-c"]
    if subprocess.run([*alone, mounts], capture_output=True, check=False).returncode == 0:
        os.environ["DISTAG_TEST_ALONE"] = "1"
        os.execvp(alone[0], [*alone, mounts + ' && exec "$@"', "sh", *program])


def run_all(module):
    """Runs the functions of a test whose names begin with check_."""
    before = folders()
    for name in [name for name in module if name.startswith("check_")]:
        try:
            module[name]()
        except Skipped as missing:
            print(f"skipped {name}: {missing}")
            continue
        print(f"ok {name}")
    equal(folders() - before, set())


def folders():
    """Those of launches, in the folder that the tests give them."""
    return {name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("distag")}
