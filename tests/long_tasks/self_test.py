#!/usr/bin/python3
"""The report of long tasks finds one that is long each time, and leaves out what the machine made long."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TASK = "static const char* name_of() [with D = distag::Worker::shutdown(distag::Nanos)::<lambda()>; R = void; Args = {}]"


def run(lines):
    """What the report prints of these lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "long_tasks.txt")
        if lines is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        command = [sys.executable, "-B", os.path.join(HERE, "report.py"), path]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


printed = run(None)
assert "tasks of loops: 0 took" in printed, printed
printed = run([f"26000 0 1 capi_calls {TASK}"] * 10 + [f"29000 0 1 python3 {TASK}"] * 10)
assert "long task: distag::Worker::shutdown(distag::Nanos)::<lambda()>, 9 x in capi_calls" in printed, printed
assert "tasks of loops: 0 took" in printed, printed
printed = run([f"26000 0 1 capi_calls {TASK}"] * 10 + [f"31000 0 1 capi_calls {TASK}", "5001 0 1 capi_calls another"])
assert "often: distag::Worker::shutdown" in printed and "10 x in capi_calls, at most 31000 us" in printed, printed
assert "tasks of loops: 1 took" in printed and "another" not in printed, printed
printed = run([f"26000 0 1 hot_paths {TASK}"] * 99)  # runs under callgrind
assert "hot_paths" not in printed, printed
printed = run([f"6000 1000000 1 capi_calls {TASK}"] * 99)  # waited for its pages
assert "capi_calls" not in printed, printed
printed = run([f"26000 1 1 capi_calls {TASK}"] * 99)
assert "tasks of loops: 1 took" in printed, printed

printed = run([f"26000 0 {process} capi_calls {TASK}" for process in range(99)])  # once in each process
assert "capi_calls" not in printed, printed
printed = run([f"26000 0 {process} capi_calls {TASK}" for process in range(10) for _ in range(2)])
assert "tasks of loops: 1 took" in printed, printed
print("ok")
