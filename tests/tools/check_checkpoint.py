"""distag checkpoint show, check and merge: what is saved, what is damaged, and all of it in one file.

usage: check_checkpoint.py DISTAG"""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile

DISTAG = sys.argv[1]


def checkpoint(*arguments):
    return subprocess.run([DISTAG, "checkpoint", *arguments], capture_output=True, text=True, timeout=240)


def write(path, tensors):
    """{name: (dtype, shape, bytes)}, one behind the other."""
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def check_names():
    """Names of others are told on one line, and cannot move the cursor; a merge puts large elements first."""
    with tempfile.TemporaryDirectory() as folder:
        path, merged = os.path.join(folder, "m.safetensors"), os.path.join(folder, "merged")
        number, byte = struct.pack("<f", 1), b"\1"
        write(path, {"a\"\n\x1b[31m\\": ("F32", [1], number), "b": ("BOOL", [1], byte),
                     "c\u009b\u00e9": ("F64", [1], struct.pack("<d", 2)), "d": ("I64", [1], struct.pack("<q", 3))})
        shown = checkpoint("show", folder)
        assert shown.stdout.splitlines() == [
            'a\\"\\u000a\\u001b[31m\\\\  float32 [1]  4 bytes', "b  bool [1]  1 bytes", "c\\u009b\u00e9  float64 [1]  8 bytes",
            "d  int64 [1]  8 bytes", "4 tensors, 21 bytes"], shown
        assert checkpoint("merge", folder, merged).returncode == 0
        with open(merged, "rb") as file:
            written = file.read()
        size, = struct.unpack("<Q", written[:8])
        assert written[8 + size:] == struct.pack("<dqf", 2, 3, 1) + byte, written
        assert list(json.loads(written[8:8 + size]))[0] == "c\u009b\u00e9", written
        write(path, {"x\x1b[31m": ("F16", [1], b"\0\0")})
        os.remove(merged)
        assert checkpoint("check", folder).returncode == 0
        refused = checkpoint("merge", folder, merged)
        assert "is of dtype F16" in refused.stderr and not os.path.exists(merged), refused
        assert "\\u001b" in refused.stderr and "\x1b" not in refused.stderr, refused


def check_many_files():
    """More files than descriptors, and than are kept open."""
    with tempfile.TemporaryDirectory() as folder:
        count, names = 300, {}
        for i in range(count):
            names[f"t{i:03}"] = f"part-{i}.safetensors"
            write(os.path.join(folder, names[f"t{i:03}"]), {f"t{i:03}": ("I64", [1], struct.pack("<q", i))})
        with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump({"metadata": {}, "weight_map": names}, file)
        for limit in (64, 1024):
            merged = os.path.join(folder, f"merged{limit}")
            for arguments in (["check", folder], ["show", folder], ["merge", folder, merged]):
                done = subprocess.run(["/bin/sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", DISTAG, "checkpoint", *arguments],
                                      capture_output=True, text=True, check=False, timeout=240)
                assert (done.returncode, done.stderr) == (0, ""), (limit, arguments, done)
            with open(merged, "rb") as file:
                written = file.read()
            assert written[-8 * count:] == struct.pack(f"<{count}q", *range(count)), limit


def check_large_file():
    """A check reads in pieces."""
    with tempfile.TemporaryDirectory() as folder:
        path, size = os.path.join(folder, "large.safetensors"), 1 << 30
        text = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + size)  # nothing of it is on the disk
        checked = checkpoint("check", path)
        assert checked.returncode == 0, checked
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        assert peak < size // 2, peak


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
        assert (checked.returncode, checked.stdout) == (0, "whole, with no sums beside the elements to check them\n"), checked
        merged = os.path.join(folder, "merged")
        made = checkpoint("merge", path, merged)
        assert (made.returncode, made.stdout) == (0, f"2 tensors in {merged}\n"), made
        shown = checkpoint("show", merged)
        assert shown.stdout == "b  bool [2]  2 bytes\nw  float32 [2, 3]  24 bytes\n2 tensors, 26 bytes\n", shown
        with open(merged, "rb") as file:
            written = file.read()
        size, = struct.unpack("<Q", written[:8])
        assert size % 8 == 0 and written[8 + size:] == struct.pack("<6f", *range(6)) + b"\0\1", written
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
    check_names()
    check_many_files()
    check_large_file()
    return 0


if __name__ == "__main__":
    sys.exit(main())
