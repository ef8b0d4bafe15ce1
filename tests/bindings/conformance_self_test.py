"""check_conformance.py passes on a program that runs the cases it has to, and on no other.
usage: conformance_self_test.py"""
import json
import os
import subprocess
import sys
import tempfile

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_conformance.py")
CASES = [{"name": "values: one"}, {"name": "values: two", "refused_by": ["c"]}, {"name": "life: three"}]
ONE, TWO, THREE = "ok 1 - values: one", "ok 2 - values: two", "ok 3 - life: three"
ROWS = [  # options, what the program prints, its status, and a part of the answer of a check that passes or fails
    ([], (ONE, TWO, THREE, "1..3"), 0, True, "3 cases, all ok"),
    ([], (ONE, TWO, THREE, "1..3"), 1, False, "left with 1"),
    ([], (ONE, TWO, "1..2"), 0, False, "left out: life: three"),
    ([], (ONE, f"not {TWO}", THREE, "1..3"), 0, False, "not ok: values: two"),
    ([], (ONE, THREE, TWO, "1..3"), 0, False, "order"),
    ([], (ONE, TWO, THREE), 0, False, "no line 1..3"),
    (["--language", "c"], (ONE, f"{TWO} # refused", THREE, "1..3"), 0, True, "3 cases, all ok"),
    (["--language", "c"], (ONE, TWO, THREE, "1..3"), 0, False, "done, and said to be refused: values: two"),
    (["--language", "go"], (ONE, f"{TWO} # refused", THREE, "1..3"), 0, False, "may not be: values: two"),
    (["--only", "values:"], (ONE, TWO, "1..2"), 0, True, "2 cases, all ok"),
    (["--only", "values:"], (ONE, "1..1"), 0, False, "left out: values: two"),
    (["--only", "values:"], (), 0, False, "left out: values: one"),
    (["--only", "values:"], (ONE, TWO, "1..2"), 99, False, "left with 99"),  # as valgrind does that found something
    (["--only", "values: report:"], (ONE, TWO, "1..2"), 0, False, "no case has ['report:']"),
    (["--only", ""], ("1..0",), 0, False, "no case has"),
]


def main():
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        cases = os.path.join(folder, "cases.json")
        with open(cases, "w", encoding="utf-8") as file:
            json.dump({"cases": CASES}, file)
        for options, lines, status, passes, said in ROWS:
            script = "".join(f"echo '{line}'; " for line in lines) + f"exit {status}"
            done = subprocess.run([sys.executable, "-B", CHECK, cases, *options, "sh", "-c", script], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if (done.returncode == 0) != passes or said not in done.stdout:
                complaints.append(f"{options} {lines}: {done.returncode} {done.stdout!r}")
    print("\n".join(complaints) or f"{len(ROWS)} programs judged")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
