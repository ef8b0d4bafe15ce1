#!/usr/bin/python3
"""Runs a suite by ctest and gives a verdict that depends on the tree, not on the machine.

usage: suite.py BUILD [CTEST ARGUMENTS...]   BUILD: a folder that cmake made

A test that fails runs once more, alone, after all others. Passed then, it is flaky: listed with both outputs, and the run
is green with at most three such. Never flaky are a crash, a finding of a sanitizer, a failed assertion and a test that
cannot be started. Each that was seen has a line in tests/flaky.md.

A test that measures (time, shares of a core, throughput) prints "figure: NAME NUMBER UNIT" and does not fail by it. The
figures stand at the end, beside those of tests/verdict/figures.txt, for whoever reads them. That file has the lines that
were printed at the end of the last release's run.

What a test says that it has left out ("skipped: ...", "not run: ...", or GoogleTest's word) is repeated at the end, also where it passed.

Exit code 0: green; 1: red; 2: wrong arguments. Outputs of failed tests are in BUILD/verdict, the end of all that is printed
begins with "verdict:".
"""
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_FLAKY = 3
OUTPUT_BYTES = str(16 << 20)
REASONS_OF_FLAKY = {"Failed", "Timeout"}
# Also of a process that the test started, as the shell, libzmq, Python, GoogleTest and the programs here say it: SIGABRT is
# 6, or 134 with a core, to waitpid and -6 to Python. Races and bad memory are found by Go and valgrind as well.
NEVER_FLAKY = re.compile(r"(Thread|Address|Leak|Memory|UndefinedBehavior)Sanitizer|: runtime error: |"
                         r"WARNING: DATA RACE|fatal error: (checkptr|concurrent map|unexpected signal)|"
                         r"Invalid (read|write) of size|definitely lost: [1-9]|uninitialised value|"
                         r"[Aa]ssertion .* failed|Assertion failed: |terminate called|\*\*\* stack smashing|"
                         r"(double free|corrupted|invalid pointer|invalid size)|"
                         r"Segmentation fault|Bus error|Illegal instruction|Floating point exception|\bAborted\b|"
                         r"\bSIG(SEGV|ABRT|BUS|ILL|FPE)\b|WIFEXITED\(|\bstatus( is|\n +Which is:)? 13[24569]\b|"
                         r"the status (4|6|7|8|11|13[24569]) of waitpid|"
                         r"(ended with -|by signal )(4|6|7|8|11)\b|\(-(4|6|7|8|11), ['\"]")
FIGURE = re.compile(r"^figure: (\S+) (-?[0-9][0-9.e+-]*) ([^\s;]+)(?:; last release: .*)?$", re.MULTILINE)
SKIPPED = re.compile(r"^(?:(?:skipped|not run): .*|.*: Skipped\n.*)$", re.MULTILINE)  # of our programs, of GoogleTest with its reason
FAILED = re.compile(r"^\s*\d+ - (\S+) \((.+)\)$")


def run_ctest(build, name, arguments):
    """(exit code, {test: output}, {test: reason of its failure}) of a run of ctest, which prints as it goes."""
    report = os.path.join(build, "verdict", name + ".xml")
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--output-junit", report,
               "--test-output-size-passed", OUTPUT_BYTES, "--test-output-size-failed", OUTPUT_BYTES, *arguments]
    reasons, in_list = {}, False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as running:
        for line in running.stdout:
            print(line, end="", flush=True)
            in_list = in_list or line.startswith("The following tests FAILED:")
            found = FAILED.match(line) if in_list else None
            if found:
                reasons[found.group(1)] = found.group(2)
    outputs = {}
    if os.path.exists(report):
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            outputs[case.get("name")] = case.findtext("system-out") or ""
    return running.returncode, outputs, reasons


def keep(build, name, text):
    path = os.path.join(build, "verdict", name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def why_red(output, reason):
    """Why a failure counts at once, or None if the test may be tried again."""
    if reason not in REASONS_OF_FLAKY:
        return reason
    found = NEVER_FLAKY.search(output)
    return found.group(0) if found else None


def configuration(arguments):
    """The arguments with which ctest knows the tests of a configuration ("-C long")."""
    for at, argument in enumerate(arguments):
        if argument in ("-C", "--build-config"):
            return arguments[at:at + 2]
        if argument.startswith(("-C", "--build-config=")):
            return [argument]
    return []


def retry(build, failed, outputs, arguments):
    """(lines of red tests, lines of flaky ones): each that may be flaky runs again, alone."""
    red, flaky = [], []
    for name, reason in failed.items():
        first = keep(build, name + ".1.txt", outputs.get(name, ""))
        at_once = why_red(outputs.get(name, ""), reason)
        if at_once or len(failed) > MOST_FLAKY:
            red.append(f"{name} ({at_once or reason}): {first}")
            continue
        print(f"\nagain, alone: {name}", flush=True)
        code, again, _ = run_ctest(build, "again", ["--no-tests=error", "-R", f"^{re.escape(name)}$",
                                                  *configuration(arguments)])
        second = keep(build, name + ".2.txt", again.get(name, ""))
        if code == 0:
            flaky.append(f"{name} ({reason}): {first} {second}")
        else:
            red.append(f"{name} ({reason}, twice): {first} {second}")
    return red, flaky


def figures_of(texts):
    return {name: (float(number), unit) for text in texts for name, number, unit in FIGURE.findall(text)}


def print_figures(outputs):
    """What tests measured, beside what the last release had."""
    measured = figures_of(outputs.values())
    with open(os.path.join(HERE, "figures.txt"), encoding="utf-8") as file:
        before = figures_of([file.read()])
    for name, (number, unit) in sorted(measured.items()):
        last = f"{before[name][0]:g}" if name in before else "-"
        print(f"figure: {name} {number:g} {unit}; last release: {last}")


def print_skipped(outputs):
    """What tests left out for want of something, once each: a green test may have skipped a part."""
    for name, output in sorted(outputs.items()):
        for found in sorted(set(SKIPPED.findall(output))):
            print(f"verdict: left out: {name}: {' '.join(found.split())}")


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    build, arguments = os.path.abspath(sys.argv[1]), sys.argv[2:]  # ctest takes paths from the folder of the tests
    shutil.rmtree(os.path.join(build, "verdict"), ignore_errors=True)
    os.makedirs(os.path.join(build, "verdict"))
    code, outputs, failed = run_ctest(build, "first", arguments)
    red, flaky = retry(build, failed, outputs, arguments)
    if code != 0 and not failed:
        red.append(f"ctest ended with {code}")
    if not outputs:
        red.append("no test left a result")
    print()
    print_figures(outputs)
    print_skipped(outputs)
    for line in red:
        print(f"verdict: red: {line}")
    for line in flaky:
        print(f"verdict: flaky: {line}")
    print(f"verdict: {'red' if red else 'green'}: {len(outputs)} tests, {len(red)} failed, {len(flaky)} flaky", flush=True)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
