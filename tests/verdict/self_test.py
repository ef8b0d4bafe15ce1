#!/usr/bin/python3
"""The runner of the suite is red, green or green with flaky tests, as the tests planted here deserve."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PASSES = "exit 0"
FAILS = "echo wrong; exit 1"
FIGURES = "A heading.\nfigure: self_test.waited 10 ms; last release: -\n"  # as a run prints it
EACH_SECOND_TIME = "if [ -e $0.seen ]; then echo right; else echo wrong; touch $0.seen; exit 1; fi"


def run(tests, *arguments):
    """Exit code and text of a suite of these shell programs, by name. Outputs kept in its folder come last."""
    with tempfile.TemporaryDirectory() as folder:
        runner = os.path.join(folder, "runner")
        os.mkdir(runner)
        shutil.copy(os.path.join(HERE, "suite.py"), runner)
        with open(os.path.join(runner, "figures.txt"), "w", encoding="utf-8") as file:
            file.write(FIGURES)
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            for name, program in tests.items():
                path = os.path.join(folder, name)
                if program is not None:
                    with open(path, "w", encoding="utf-8") as script:
                        script.write(program + "\n")
                added = (f"add_test({name} {'/bin/sh ' if program is not None else ''}{path})\n"
                         f"set_tests_properties({name} PROPERTIES TIMEOUT 60 SKIP_RETURN_CODE 77)\n")
                if name.endswith("_long"):
                    added = f'if(CTEST_CONFIGURATION_TYPE STREQUAL "long")\n{added}endif()\n'
                file.write(added)
        # By a relative path, as tests/run.sh does.
        done = subprocess.run([sys.executable, "-B", os.path.join(runner, "suite.py"), os.path.basename(folder), *arguments],
                              cwd=os.path.dirname(folder), capture_output=True, text=True, check=False)
        kept = ""
        for name in sorted(os.listdir(os.path.join(folder, "verdict"))):
            if name.endswith(".txt"):
                with open(os.path.join(folder, "verdict", name), encoding="utf-8") as file:
                    kept += f"{name}: {file.read()}"
        return done.returncode, done.stdout.replace(folder, "B") + kept


def seen(expected_code, expected, tests, *arguments):
    code, text = run(tests, *arguments)
    assert code == expected_code, (code, text)
    for part in expected:
        assert part in text, (part, text)
    return text


seen(0, ["verdict: green: 2 tests, 0 failed, 0 flaky"], {"one": PASSES, "two": PASSES})
seen(0, ["verdict: green: 1 tests"], {"one": PASSES, "two": FAILS}, "-R", "one")
seen(0, ["verdict: green"], {"one": PASSES, "skipped": "exit 77"})

# Fails always; fails each second time.
seen(1, ["verdict: red: bad (Failed, twice): B/verdict/bad.1.txt B/verdict/bad.2.txt", "bad.2.txt: wrong"],
     {"one": PASSES, "bad": FAILS})
text = seen(0, ["verdict: flaky: shaky (Failed): B/verdict/shaky.1.txt B/verdict/shaky.2.txt",
                "verdict: green: 2 tests, 0 failed, 1 flaky", "shaky.1.txt: wrong", "shaky.2.txt: right"],
            {"shaky": EACH_SECOND_TIME, "one": PASSES})
assert text.index("Test #2") < text.index("again, alone: shaky"), text
seen(0, ["verdict: flaky: shaky_long"], {"shaky_long": EACH_SECOND_TIME}, "-C", "long")
seen(0, ["0 failed, 3 flaky"], {f"shaky{i}": EACH_SECOND_TIME for i in range(3)})
seen(1, ["verdict: red: shaky0 (Failed)", "4 failed"], {f"shaky{i}": EACH_SECOND_TIME for i in range(4)})

# Never flaky: they pass if they are run again, and are not.
for name, first, word in [
        ("race", "echo 'WARNING: ThreadSanitizer: data race (pid=1)'; exit 66", "(ThreadSanitizer)"),
        ("address", "echo '==1==ERROR: AddressSanitizer: heap-use-after-free'; exit 1", "(AddressSanitizer)"),
        ("undefined", "echo 'a.cpp:1:2: runtime error: signed integer overflow'; exit 1", "(: runtime error: )"),
        ("asserted", "echo 'x: a.cpp:1: f(): Assertion \"a\" failed.'; exit 1", "failed)"),
        ("crash", "kill -SEGV $$", "(SEGFAULT)"),
        ("abort", "kill -ABRT $$", "(Subprocess aborted)"),
        ("crash_of_child", "sh -c 'kill -SEGV $$'; exit 1", "(Segmentation fault)"),
        ("abort_of_child", "echo 'the process of rank 1 ended with the status 134 of waitpid'; exit 1", "(the status 134"),
        ("told_by_python", "echo 'w1 ended with -6'; exit 1", "(ended with -6)"),
        ("code_in_python", "echo \"AssertionError: (-11, '') != (0, '')\"; exit 1", "((-11, ')"),
        ("status_in_c", "echo 'lacks.c:233: status is 139, not 0'; exit 1", "(status is 139)"),
        ("status_of_rank", "echo 'rank 1: status 139'; exit 1", "(status 139)"),
        ("no_end_in_c", "echo 'metrics.c:124: WIFEXITED(status) && WEXITSTATUS(status) == 0'; exit 1", "(WIFEXITED()"),
        ("status_in_gtest", "printf '  status\\n    Which is: 134\\n  0\\n'; exit 1", "Which is: 134)"),
        ("race_in_go", "echo 'WARNING: DATA RACE'; exit 66", "(WARNING: DATA RACE)"),
        ("pointer_in_go", "echo 'fatal error: checkptr: misaligned pointer conversion'; exit 2", "checkptr)"),
        ("valgrind", "echo '==7== Invalid read of size 8'; exit 99", "(Invalid read of size)"),
        ("lost_memory", "echo '==7==    definitely lost: 24 bytes in 1 blocks'; exit 99", "(definitely lost: 2)"),
        ("asserted_by_zmq", "echo 'Assertion failed: ok (src/mailbox.cpp:72)'; exit 1", "(Assertion failed: )")]:
    text = seen(1, [f"verdict: red: {name} ", word, "1 failed, 0 flaky"],
                {name: f"if [ ! -e $0.seen ]; then touch $0.seen; {first}; fi"})
    assert "again" not in text, text
# A child that is killed as planned, or ends with a code, says nothing of the library, nor does a number.
seen(0, ["1 flaky"], {"waited": "if [ ! -e $0.seen ]; then touch $0.seen; echo 'status is 4, not 0; f(8), (-4, 3)'; exit 1; fi"})
seen(0, ["1 flaky"], {"killed": "if [ ! -e $0.seen ]; then touch $0.seen; echo 'w1 ended with -9, w2 ended with 1'; exit 1; fi"})
seen(1, ["verdict: red: gone (Not Run)"], {"gone": None})
seen(1, ["verdict: red: ctest ended with"], {"one": PASSES}, "--no-tests=error", "-R", "nothing")

# What a test leaves out is told, be it green.
seen(0, ["verdict: left out: part: skipped: no namespaces", "verdict: green: 1 tests"],
     {"part": "echo 'skipped: no namespaces'; echo done"})
seen(0, ["verdict: left out: half: not run: torch/nn.h is missing"], {"half": "echo 'not run: torch/nn.h is missing'"})
seen(0, ["verdict: left out: unit: a_test.cpp:3: Skipped not root"], {"unit": "echo 'a_test.cpp:3: Skipped\nnot root'"})

# Three are the most of all suites together.
STEPS = os.path.join(HERE, "..", "..", ".ci", "steps.sh")
for counts, is_green in ((1, 2), True), ((2, 2), False):
    with tempfile.TemporaryDirectory() as folder:
        steps = "".join(f"step suite{i} printf 'verdict: flaky: a (Failed): f\\n%.0s' {' '.join('x' * count)}\n"
                        for i, count in enumerate(counts))
        done = subprocess.run(["bash", "-c", f". {STEPS}\n{steps}print_summary"], env={**os.environ, "logs": folder},
                              cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == is_green, (counts, done)
    assert ("flaky tests: three are the most" in done.stdout) != is_green, (counts, done.stdout)

# What a test measures is told, and decides nothing.
seen(0, ["figure: self_test.waited 12.5 ms; last release: 10"], {"one": "echo 'figure: self_test.waited 12.5 ms'"})
seen(0, ["figure: self_test.new 3 us; last release: -"], {"one": "echo 'figure: self_test.new 3 us'"})
print("ok")
