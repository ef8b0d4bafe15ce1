"""distag keygen --worker: the secret in a file for its user alone, the public key in a line; a file that is there stays.

usage: check_keygen.py DISTAG"""
import os
import re
import stat
import subprocess
import sys
import tempfile

DISTAG = sys.argv[1]


def keygen(*arguments):
    return subprocess.run([DISTAG, "keygen", *arguments], capture_output=True, text=True, timeout=240)


def main():
    with tempfile.TemporaryDirectory() as folder:
        made = keygen("--worker", "worker0", folder)
        assert made.returncode == 0, made
        assert re.fullmatch(r"worker0 \S{40}\n", made.stdout), made.stdout
        path = os.path.join(folder, "worker0.key")
        with open(path, encoding="utf-8") as file:
            secret = file.read()
        assert re.fullmatch(r"\S{40}\n", secret), "no secret"
        assert secret.strip() not in made.stdout
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, os.stat(path)
        again = keygen("--worker", "worker0", folder)
        assert again.returncode == 1 and "worker0.key" in again.stderr and not again.stdout, again
        with open(path, encoding="utf-8") as file:
            assert file.read() == secret
        for arguments in (["--worker", "worker2", folder], []):
            with tempfile.TemporaryFile() as output:  # a file, which may not grow either
                short = subprocess.run(["/bin/sh", "-c", 'ulimit -f 0; exec "$@"', "sh", DISTAG, "keygen", *arguments],
                                       stdout=output, stderr=subprocess.PIPE, text=True, timeout=240)
            assert short.returncode == 1 and "distag: " in short.stderr and "ulimit -f" in short.stderr, short
        assert os.listdir(folder) == ["worker0.key"], os.listdir(folder)
        assert keygen("--worker", "worker2", folder).returncode == 0
        os.remove(os.path.join(folder, "worker2.key"))
        for bad in ("", "../worker1", "two words"):
            refused = keygen("--worker", bad, folder)
            assert refused.returncode == 1 and "no name of a worker" in refused.stderr, refused
        assert os.listdir(folder) == ["worker0.key"], os.listdir(folder)
        assert keygen("--worker", "worker1").returncode == 2
        assert keygen("--other").returncode == 2
        assert re.fullmatch(r"\S{48}\n", keygen().stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
