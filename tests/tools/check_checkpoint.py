"""distag checkpoint show, check and merge: what is saved, what is damaged, and all of it in one file.

usage: check_checkpoint.py DISTAG"""
import json
import os
import struct
import subprocess
import sys
import tempfile

DISTAG = sys.argv[1]


def checkpoint(*arguments):
    return subprocess.run([DISTAG, "checkpoint", *arguments], capture_output=True, text=True, timeout=240)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                             "b": {"dtype": "BOOL", "shape": [2], "data_offsets": [24, 26]}}).encode()
        good = struct.pack("<Q", len(header)) + header + struct.pack("<6f", *range(6)) + b"\0\1"
        with open(path, "wb") as file:
            file.write(good)
        shown = checkpoint("show", folder)
        assert (shown.returncode, shown.stderr) == (0, ""), shown
        assert shown.stdout == "b  bool [2]  2 bytes\nw  float32 [2, 3]  24 bytes\n2 tensors, 26 bytes\n", shown.stdout
        checked = checkpoint("check", path)
        assert (checked.returncode, checked.stdout) == (0, "2 tensors, each piece as it was saved\n"), checked
        merged = os.path.join(folder, "merged")
        made = checkpoint("merge", path, merged)
        assert (made.returncode, made.stdout) == (0, f"2 tensors in {merged}\n"), made
        shown = checkpoint("show", merged)
        assert shown.stdout == "b  bool [2]  2 bytes\nw  float32 [2, 3]  24 bytes\n2 tensors, 26 bytes\n", shown
        with open(merged, "rb") as file:
            written = file.read()
        size, = struct.unpack("<Q", written[:8])
        assert size % 8 == 0 and written[8 + size:] == b"\0\1" + struct.pack("<6f", *range(6)), written
        for target in (os.path.join(folder, "no", "folder"), folder):
            made = checkpoint("merge", path, target)
            assert made.returncode == 1 and target in made.stderr, made
        short = subprocess.run(["/bin/sh", "-c", 'ulimit -f 0; exec "$@"', "sh", DISTAG, "checkpoint", "merge", path, merged],
                               capture_output=True, text=True, check=False, timeout=240)
        assert short.returncode == 1 and "ulimit -f" in short.stderr, short
        with open(merged, "rb") as file:
            assert file.read() == written  # the one before is as it was
        with open(merged + ".part", "w", encoding="utf-8"):
            pass
        made = checkpoint("merge", path, merged)
        assert made.returncode == 1 and merged + ".part: another merge" in made.stderr, made
        os.remove(merged + ".part")
        os.remove(merged)
        assert os.listdir(folder) == ["model.safetensors"], os.listdir(folder)
        with open(path, "wb") as file:
            file.write(good[:-1] + b"\2")
        checked = checkpoint("check", folder)
        assert checked.returncode == 1 and "model.safetensors" in checked.stderr and '"b"' in checked.stderr, checked
        with open(path, "wb") as file:
            file.write(good[:-1])
        assert "PROTOCOL" in checkpoint("show", folder).stderr
        nothing = checkpoint("show", os.path.join(folder, "nothing"))
        assert nothing.returncode == 1 and "NOT_FOUND" in nothing.stderr, nothing
        for wrong in ((), ("show",), ("list", folder), ("show", folder, "more"), ("merge", folder)):
            assert checkpoint(*wrong).returncode == 2, wrong
    return 0


if __name__ == "__main__":
    sys.exit(main())
