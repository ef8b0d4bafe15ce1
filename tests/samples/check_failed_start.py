"""A sample whose start fails says why, not what came of that. usage: check_failed_start.py SAMPLE [ARGUMENTS...]"""
import os
import subprocess
import sys

WHY = 'port "70000" of "tcp://127.0.0.1:70000" is not a number'


def main():
    for rank in (0, 1):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DISTAG_", "MASTER_"))}
        environment.update(RANK=str(rank), WORLD_SIZE="4", DISTAG_RENDEZVOUS="tcp://127.0.0.1:70000")
        done = subprocess.run(sys.argv[1:], env=environment, capture_output=True, text=True, timeout=240, check=False)
        print(done.stdout + done.stderr)
        assert done.returncode == 1, f"rank {rank} ended with {done.returncode}"
        assert WHY in done.stderr, f"rank {rank} does not say: {WHY}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
