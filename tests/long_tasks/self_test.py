#!/usr/bin/python3
"""The judge of long tasks finds one that is long each time, and lets one pass that was long once."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TASK = "static const char* name_of() [with D = distag::Worker::shutdown(distag::Nanos)::<lambda()>; R = void; Args = {}]"


def run(lines, again=None):
    """Exit code and text of a judge of these lines. `again`: the command that runs a program again, given FILE first."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "long_tasks.txt")
        if lines is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        command = [sys.executable, "-B", os.path.join(HERE, "judge.py"), path]
        if again:
            command += ["/bin/sh", "-c", again, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


code, printed = run(None)
assert code == 0 and "0 took" in printed, printed
code, printed = run([f"26000 capi_calls {TASK}"] * 9 + [f"29000 python3 {TASK}"] * 9)
assert code == 0 and "9 times: distag::Worker::shutdown(distag::Nanos)::<lambda()>, 9 x in capi_calls" in printed, printed
code, printed = run([f"26000 capi_calls {TASK}"] * 9 + [f"31000 capi_calls {TASK}", "5001 capi_calls another"])
assert code == 1 and "FAILED: distag::Worker::shutdown" in printed and "10 x in capi_calls, at most 31000 us" in printed, printed
assert "another" not in printed, printed
code, printed = run([f"26000 hot_paths {TASK}"] * 99)  # runs under callgrind
assert code == 0 and "hot_paths" not in printed, printed

# A second look, with nothing beside it: `$0` is the file, `$1` the pattern of the program.
LONG = [f"26000 capi_calls {TASK}"] * 10
code, printed = run(LONG, again='[ "$1" = "^capi_calls$" ]')  # nothing was long this time
assert code == 0 and printed.count("again, one by one: capi_calls") == 1, printed
code, printed = run(LONG, again='for i in 1 2 3 4 5 6 7 8 9 10; do echo "26000 capi_calls task" >> "$0"; done')
assert code == 1 and printed.count("again, one by one: capi_calls") == 2, printed
code, printed = run(LONG, again="exit 1")
assert code == 1 and printed.count("again") == 1, printed
print("ok")
