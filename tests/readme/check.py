#!/usr/bin/env python3
"""The first page keeps its form, and PyTorch's program on it prints what the others print.

    check.py README.md DISTAG

The programs for distag are run by documents_blocks. PyTorch's is run where torch is installed (Debian: python3-torch);
elsewhere it is compiled only, and a line says so.
"""
import importlib.util
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile

MOST_LINES, MOST_WORDS, MOST_WORDS_BEFORE, PROGRAMS_END, MEDIAN_WORDS = 120, 900, 150, 60, 20


def sentences(text):
    """The sentences of the prose: no blocks, comments, headings or tables."""
    prose = re.sub(r"^```.*?^```$|<!--.*?-->|^#.*?$|^\|.*?$", "\n\n", text, flags=re.S | re.M)
    prose = re.sub(r"^- ", "\n\n", prose, flags=re.M)
    for paragraph in re.split(r"\n\s*\n", prose):
        for sentence in re.split(r"(?<=[.!?:;])\s+", paragraph.strip()):
            if sentence.split():
                yield sentence


def check_form(text):
    fences = [text.count("\n", 0, match.start()) + 1 for match in re.finditer(r"^```", text, re.M)]
    if len(fences) < 4:
        yield "there are no two programs"
        return
    before = "\n".join(text.split("\n")[: fences[0] - 1])
    found = (
        ("lines", text.count("\n"), MOST_LINES), ("words", len(text.split()), MOST_WORDS),
        ("words before the first program", len(before.split()), MOST_WORDS_BEFORE),
        ("lines until the second program ends", fences[3], PROGRAMS_END),
        ("words in the median sentence", statistics.median(len(each.split()) for each in sentences(text)), MEDIAN_WORDS))
    for what, count, most in found:
        if count > most:
            yield f"{count} {what}, at most {most} are allowed"


def block(text, name):
    return re.search(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)^```$", text, re.S | re.M).group(1)


def check_torch(text, distag):
    program = block(text, "example_torch.py")
    compile(program, "example_torch.py", "exec")
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: its program was compiled only")
        return
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        with open(os.path.join(folder, "example_torch.py"), "w", encoding="utf-8") as file:
            file.write(program)
        done = subprocess.run([distag, "run", "-n", "2", sys.executable, "example_torch.py"], cwd=folder, timeout=240,
                              env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0 or done.stdout != "[0] [2.0, 4.0, 6.0]\n":
        yield f"PyTorch's program leaves with {done.returncode} and prints {done.stdout!r}: {done.stderr[-1500:]}"


def self_test():
    short = "One sentence.\n```c\na\n```\n```c\nb\n```\n"
    for text, expected in ((short, 0), (short + "\n" * 120, 1), ("\n" * 55 + short, 1), ("word " * 151 + short, 2),
                           (short + "word " * 900, 2), ("no program", 1)):
        found = list(check_form(text))
        if len(found) != expected:
            yield f"self test: {expected} complaints were expected, got {found}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    wrong = [*self_test(), *check_form(text), *check_torch(text, sys.argv[2])]
    print("\n".join(wrong) or "the first page has its form")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
