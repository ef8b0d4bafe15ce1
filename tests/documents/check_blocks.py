"""Runs every code block of the documents, against an installed library, in a folder of the document's own.
usage: check_blocks.py REPOSITORY BUILD_FOLDER CMAKE WORK_FOLDER [DOCUMENT...]

A block of c, cpp, csharp, go, lua, python, rust or sh has to run and leave with 0; a plain block right after it is what it prints. Comments above
a block say what else holds:
  <!-- file: NAME -->        the block is a file that later ones use
  <!-- not run: REASON -->   it cannot be run here
Blocks of docs/errors.md fail on purpose: check_errors.py runs them."""
import glob
import os
import re
import shutil
import subprocess
import sys

BLOCK = re.compile(r"(?:^<!-- (?P<mark>file|not run): (?P<text>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
                   re.S | re.M)
DOCUMENTS = ("README.md", "samples/README.md", "docs/*.md", "bindings/*/README.md")
BY_OTHERS = {("docs/errors.md", "python"): "check_errors.py"}
FLAGS = "-Wall -Wextra -Werror $(pkg-config --cflags --libs distag)"
COMMANDS = {"c": f"cc -std=c11 -D_GNU_SOURCE block.c -o block {FLAGS} && ./block",
            "cpp": f"c++ -std=c++17 -O0 block.cpp -o block {FLAGS} && ./block",
            "csharp": "/usr/bin/mcs -warn:4 -warnaserror -r:Distag.dll -out:block.exe block.csharp && /usr/bin/mono block.exe",
            "go": "/usr/bin/go mod edit -replace \"distag=$GO_PACKAGE\" && /usr/bin/go run block.go",
            "python": "/usr/bin/python3 -B -X dev -W error block.python",
            "lua": "/usr/bin/luajit block.lua",
            "rust": "mkdir -p src && cp block.rust src/main.rs && echo \"$RUST_PACKAGE\" > Cargo.toml && "
                    "PATH=/usr/bin:$PATH CARGO_HOME=$PWD/home cargo run --offline --quiet", "sh": "sh -eu block.sh"}
RUST_PACKAGE = """[package]
name = "block"
version = "0.1.0"
edition = "2021"
[dependencies]
distag = {{ path = "{}/bindings/rust/distag" }}
[workspace]"""
MOST_LINES = {"bindings": 92}  # of a README


class Block:
    def __init__(self, match, text):
        self.mark, self.note, self.language, self.body = match.group("mark", "text", "language", "body")
        self.line = text.count("\n", 0, match.start("language")) + 1
        self.output = None  # what it has to print, if a plain block says so


def read_blocks(text):
    """The blocks that are code, each with its output; and complaints about those that are neither."""
    blocks, complaints, end = [], [], 0
    for match in BLOCK.finditer(text):
        block = Block(match, text)
        between = text[end : match.start()].strip()
        end = match.end()
        if block.language in COMMANDS or block.mark:
            blocks.append(block)
        elif block.language == "" and blocks and not between and blocks[-1].output is None and blocks[-1].mark is None:
            blocks[-1].output = block.body
        else:
            complaints.append(f"line {block.line}: a block that is neither run nor marked")
    fences = len(re.findall(r"^\s*```", text, re.M))
    if fences != 2 * len(BLOCK.findall(text)):
        complaints.append(f"{fences} fences, of which some make no block")
    return blocks, complaints


def run_block(block, folder, environment):
    with open(os.path.join(folder, "block." + block.language), "w", encoding="utf-8") as file:
        file.write(block.body)
    done = subprocess.run(["sh", "-c", COMMANDS[block.language]], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    if done.returncode != 0:
        return f"line {block.line}: leaves with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
    if block.output is not None and done.stdout != block.output:
        return f"line {block.line}: prints\n{done.stdout}and not\n{block.output}"
    return None


def check_document(name, text, folder, environment):
    blocks, complaints = read_blocks(text)
    os.makedirs(folder)
    for block in blocks:
        if block.mark == "file":
            with open(os.path.join(folder, block.note), "w", encoding="utf-8") as file:
                file.write(block.body)
        elif block.mark is None and (name, block.language) not in BY_OTHERS:
            complaints += filter(None, [run_block(block, folder, environment)])
    most = MOST_LINES.get(name.split("/")[0])
    if most and text.count("\n") > most:
        complaints.append(f"{text.count(chr(10))} lines, at most {most} are meant to be")
    return blocks, [f"{name}: {complaint}" for complaint in complaints]


def install(cmake, build, work):
    """The environment of a user who has installed the library."""
    prefix = os.path.join(work, "prefix")
    subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL, timeout=240)
    (pc,) = glob.glob(os.path.join(prefix, "**", "distag.pc"), recursive=True)
    libraries = os.path.dirname(os.path.dirname(pc))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DISTAG_")}
    return {**clean, "PKG_CONFIG_PATH": os.path.dirname(pc), "LD_LIBRARY_PATH": libraries, "OPENBLAS_NUM_THREADS": "1",
            "PATH": os.path.join(prefix, "bin") + ":" + os.environ["PATH"], "DISTAG_LIBRARY": os.path.join(libraries, "libdistag.so"),
            "PYTHONPATH": os.path.join(sys.argv[1], "bindings", "python"), "LUA_PATH": os.path.join(sys.argv[1], "bindings", "lua", "?.lua;;"),
            "RUST_PACKAGE": RUST_PACKAGE.format(sys.argv[1]),
            "CSHARP_PACKAGE": os.path.join(sys.argv[1], "bindings", "csharp"),
            "GO_PACKAGE": os.path.join(sys.argv[1], "bindings", "go"), "GOENV": "off", "GOPROXY": "off", "GOFLAGS": "-mod=mod",
            "GOCACHE": os.path.join(build, "tests", "documents", "go"), "GOPATH": os.path.join(work, "go")}


def self_test(work, environment):
    """What fails, prints something else or is no block is told."""
    cases = [("```sh\nexit 3\n```\n", 1), ("```sh\necho x\n```\n\n```\nx\n```\n", 0), ("```sh\necho x\n```\n\n```\ny\n```\n", 1),
             ("```\nplain\n```\n", 1), ("<!-- not run: why -->\n```\nplain\n```\n", 0), ("```sh\ntrue\n", 1),
             ("<!-- file: a -->\n```c\ntext\n```\n```sh\ncat a\n```\n```\ntext\n```\n", 0), ("```java\nx\n```\n", 1),
             ("```c\nint main(void) { return 4; }\n```\n", 1), ("```c\nint f(void);\n```\n", 1),
             ("```python\nraise ValueError\n```\n", 1)]
    for number, (text, expected) in enumerate(cases):
        _, found = check_document("self test", text, os.path.join(work, f"case{number}"), environment)
        if len(found) != expected:
            yield f"self test {number}: {expected} complaints were expected, got {found}"


def main():
    repository, build, cmake, work = sys.argv[1:5]
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    environment = install(cmake, build, work)
    complaints = list(self_test(work, environment))
    ran = 0
    for pattern in sys.argv[5:] or DOCUMENTS:
        for path in sorted(glob.glob(os.path.join(repository, pattern))):
            name = os.path.relpath(path, repository)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            blocks, found = check_document(name, text, os.path.join(work, re.sub(r"\W", "_", name)), environment)
            complaints += found
            marked = [f"line {block.line} not run: {block.note}" for block in blocks if block.mark == "not run"]
            print(f"{name}: {len(blocks)} blocks" + "".join("\n  " + each for each in marked))
            ran += len(blocks) - len(marked)
    shutil.rmtree(work)
    print("\n".join(complaints))
    print(f"{ran} blocks ran, {len(complaints)} complaints")
    return 1 if complaints or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
