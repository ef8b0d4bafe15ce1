"""The samples in Rust: digits learns as the program in C does, also against workers in C; service serves until it is
asked to stop. usage: samples.py DISTAG_COMMAND DIGITS_IN_C DIGITS_IN_RUST SERVICE DATA"""
import os
import subprocess
import sys
import tempfile

ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1")


def learn(distag, command, data):
    """What rank 0 prints of its epochs and its accuracy."""
    done = subprocess.run([distag, "run", "-n", "3", *command, data, "2"], env=ENVIRONMENT, stdout=subprocess.PIPE,
                          text=True, timeout=240, check=True)
    return done.stdout.replace("[0] ", "").splitlines()[:3]


def main():
    distag, in_c, in_rust, service, data = sys.argv[1:]
    expected = learn(distag, [in_c], data)
    mixed = ["sh", "-c", f'if [ "$RANK" = 0 ]; then exec "{in_rust}" "$@"; else exec "{in_c}" "$@"; fi', "sh"]
    assert len(expected) == 3 and "held-out accuracy 0.9" in expected[2], expected
    for command in ([in_rust], mixed):
        found = learn(distag, command, data)
        assert found == expected, (command, found, expected)
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
            [service, f"file://{folder}"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "service serves\n"
        asked = subprocess.run([service, f"file://{folder}", "ask"], stdout=subprocess.PIPE, text=True, timeout=240,
                               check=True)
        assert asked.stdout == "mean 3.0\nstopping\n", asked.stdout
        assert server.communicate(timeout=240)[0] == "served 2 calls\n"
        assert server.returncode == 0
    print(expected[2])


if __name__ == "__main__":
    main()
