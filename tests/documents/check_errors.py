"""docs/errors.md has a section for each status of the header, in order, with cause, cure and a program that fails with it.
usage: check_errors.py DOCUMENT HEADER        DISTAG_LIBRARY and PYTHONPATH lead to the Python package"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "header"))
import header_text  # noqa: E402

SECTION = re.compile(r"^## (\d+) (\w+)\n(.*?)(?=^## |\Z)", re.S | re.M)
# Runs a program, and prints the code that it fails with; its workers leave at once.
RUNNER = """import distag, os, sys
try:
    exec(compile(sys.stdin.read(), "program", "exec"), {"__name__": "__main__"})
    print("no error")
except distag.DistagError as error:
    print(int(error.code), file=sys.stdout, flush=True)
    print(error.message, file=sys.stderr, flush=True)
"""


def run(program):
    done = subprocess.run([sys.executable, "-B", "-c", RUNNER], input=program, capture_output=True, text=True, timeout=240,
                          check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def check_section(code, body, execute=run):
    programs = re.findall(r"^```python\n(.*?)^```", body, re.S | re.M)
    if len(programs) != 1:
        return f"has {len(programs)} programs"
    for label in ("**Cause.**", "**Cure.**"):
        if not re.search(re.escape(label) + r"\s+[^\s*]+\s+[^\s*]+", body):
            return f"has no {label}"
    left, seen, message = execute(programs[0])
    if (left, seen) != (0, code):
        return f"has a program that leaves with {left} and gives {seen}: {message[-600:]}"
    return None


def check(text, header, execute=run):
    wanted = [(str(each.value), each.name.removeprefix("DISTAG_E_"))
              for each in header_text.enums(header)["distag_status_code"] if each.name != "DISTAG_OK"]
    sections = SECTION.findall(text)
    seen = [(code, name) for code, name, _ in sections]
    if seen != wanted:
        yield f"the sections are {seen}, the header has {wanted}"
    for code, name, body in sections:
        complaint = check_section(code, body, execute)
        if complaint:
            yield f"{code} {name} {complaint}"


def self_test(text, header):
    """What is missing or wrong is told."""
    as_told = {program: (0, code, "") for code, _, body in SECTION.findall(text)
               for program in re.findall(r"^```python\n(.*?)^```", body, re.S | re.M)}
    execute = as_told.get
    cases = [(text, header, 0), (text.replace("## 63 GRAPH_FREED", "### 63"), header, 2),
             (text, header.replace("  DISTAG_E_USER", "  DISTAG_E_NEW = 66,\n  DISTAG_E_USER"), 1),
             (text.replace("**Cure.**", "", 1), header, 1), (text.replace("## 12 NOT_FOUND", "## 11 NOT_FOUND"), header, 2)]
    for changed, with_header, expected in cases:
        found = list(check(changed, with_header, execute))
        if len(found) != expected:
            yield f"self test: {expected} complaints were expected, got {found}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        header = file.read()
    complaints = [*self_test(text, header), *check(text, header)]
    print("\n".join(complaints))
    print(f"{len(SECTION.findall(text))} statuses, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
