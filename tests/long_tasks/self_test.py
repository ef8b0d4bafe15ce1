#!/usr/bin/python3
"""The judge of long tasks finds one that is long each time, and lets one pass that was long once."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TASK = "static const char* name_of() [with D = distag::Worker::shutdown(distag::Nanos)::<lambda()>; R = void; Args = {}]"
TESTS = {"capi_calls": ["/b/capi_calls"], "sample_calls": ["/b/run", "-n", "2", "/b/capi_calls"], "host": ["sh", "run.sh"],
         "other": ["/b/other"]}


def run(lines, again=None):
    """Exit code and text of a judge of these lines. `again`: what runs tests again; `$0` is the file, `$4` their pattern."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "long_tasks.txt")
        if lines is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        command = [sys.executable, "-B", os.path.join(HERE, "judge.py"), path]
        if again:
            listed = json.dumps({"tests": [{"name": name, "command": parts} for name, parts in TESTS.items()]})
            again = f"if [ \"$1\" = --show-only=json-v1 ]; then echo '{listed}'; exit; fi; {again}"
            command += ["/bin/sh", "-c", again, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


code, printed = run(None)
assert code == 0 and "0 took" in printed, printed
code, printed = run([f"26000 0 1 capi_calls {TASK}"] * 10 + [f"29000 0 1 python3 {TASK}"] * 10)
assert code == 0 and "9 times: distag::Worker::shutdown(distag::Nanos)::<lambda()>, 9 x in capi_calls" in printed, printed
code, printed = run([f"26000 0 1 capi_calls {TASK}"] * 10 + [f"31000 0 1 capi_calls {TASK}", "5001 0 1 capi_calls another"])
assert code == 1 and "FAILED: distag::Worker::shutdown" in printed and "10 x in capi_calls, at most 31000 us" in printed, printed
assert "another" not in printed, printed
code, printed = run([f"26000 0 1 hot_paths {TASK}"] * 99)  # runs under callgrind
assert code == 0 and "hot_paths" not in printed, printed
code, printed = run([f"6000 1000000 1 capi_calls {TASK}"] * 99)  # waited for its pages
assert code == 0 and "capi_calls" not in printed, printed
code, printed = run([f"26000 1 1 capi_calls {TASK}"] * 99)
assert code == 1, printed

code, printed = run([f"26000 0 {process} capi_calls {TASK}" for process in range(99)])  # once in each process
assert code == 0 and "capi_calls" not in printed, printed
code, printed = run([f"26000 0 {process} capi_calls {TASK}" for process in range(10) for _ in range(2)])
assert code == 1, printed

# A second look, with nothing beside it.
LONG = [f"26000 0 1 capi_calls {TASK}"] * 11
code, printed = run(LONG, again='[ "$4" = "^(capi_calls|sample_calls)$" ]')  # nothing was long this time
assert code == 0 and printed.count("again, one by one: capi_calls: 2 tests") == 1, printed
code, printed = run(LONG, again='for i in 0 1 2 3 4 5 6 7 8 9 10; do echo "26000 0 1 capi_calls task" >> "$0"; done')
assert code == 1 and printed.count("again, one by one: capi_calls") == 2, printed
code, printed = run(LONG, again="exit 1")
assert code == 1 and printed.count("again") == 1, printed
code, printed = run([f"26000 0 1 mono {TASK}"] * 11, again='[ "$4" = "^(host|sample_calls)$" ]')  # no test is named so
assert code == 0, printed
print("ok")
