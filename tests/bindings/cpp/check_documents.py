"""The programs in a document compile without a warning and print what it says.
usage: check_documents.py DOCUMENT REPOSITORY LIBRARY COMPILER WORK_FOLDER"""
import os
import re
import subprocess
import sys

MOST_LINES = 80


def main():
    document, repository, library, compiler, work = sys.argv[1:]
    with open(document, encoding="utf-8") as file:
        text = file.read()
    complaints = []
    if text.count("\n") > MOST_LINES:
        complaints.append(f"{text.count(chr(10))} lines, at most {MOST_LINES} are meant to be")
    os.makedirs(work, exist_ok=True)
    programs = re.findall(r"```cpp\n(.*?)```(?:\n\n```\n(.*?)```)?", text, re.S)
    for index, (program, output) in enumerate(programs):
        source, made = os.path.join(work, f"block{index}.cpp"), os.path.join(work, f"block{index}")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        folder = os.path.dirname(library)
        subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(repository, "include"),
                        "-I", os.path.join(repository, "bindings", "cpp"), source, "-o", made, "-L", folder, "-ldistag",
                        f"-Wl,-rpath,{folder}"], check=True)
        done = subprocess.run([made], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        if (done.returncode, done.stdout) != (0, output):
            complaints.append(f"program {index} leaves with {done.returncode} and prints:\n{done.stdout}")
    if not programs:
        complaints.append("there is no program")
    print("\n".join(complaints) or f"{len(programs)} programs, all right")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
