#!/usr/bin/python3
"""Plants each fault of bindings.txt in a copy of the bindings and runs the test that has to notice it.

usage: bindings.py LIBRARY [WORDS...]   mutants whose names have one of the WORDS, else all; LIBRARY is the
       libdistag.so of a build folder
       bindings.py --check              only whether the table fits the sources

The copy is in build/mutants_bindings. Exit code 1 if one survives, does not compile, or if a test fails without one.
"""
import os
import re
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TREE = os.path.join(ROOT, "build", "mutants_bindings")
COMPILE_SECONDS = 600
SECONDS, LONGEST = 40, 200  # for a test that takes less; one that hangs has noticed, but without a mutant
# By language: what compiles the test, and what runs it; {test} is the one of the table.
COMMANDS = {
    "lua": ("true", "luajit tests/bindings/lua/{test}.lua"),
    "python": ("true", "python3 -B tests/bindings/python/{test}.py"),
    "csharp": ("sh tests/bindings/csharp/build.sh $PWD $PWD/programs", "mono --debug programs/unit.exe {test}"),
    "go": ("cd tests/bindings/go && go test -c -vet=off -o ../../../unit ./unit",
           "./unit -test.short -test.run {test}"),
    "rust": ("cd tests/bindings/rust && cargo test --offline --quiet --no-run --test bad_days",
             "cd tests/bindings/rust && cargo test --offline --quiet --test bad_days {test}"),
    "cpp": ("g++ -std=c++17 -Iinclude -Ibindings/cpp tests/bindings/cpp/unit_test.cpp tests/bindings/cpp/lists_test.cpp "
            "tests/bindings/cpp/elsewhere.cpp -o unit_cpp -L{folder} -ldistag -Wl,-rpath,{folder} -lgtest -lgtest_main -lpthread",
            "./unit_cpp --gtest_filter={test}"),
}


class Mutant:
    def __init__(self, name):
        self.name = name
        self.language = self.test = ""
        self.texts = []  # file, old, new


def parse(table):
    """The mutants of a table; ValueError for a line without a meaning."""
    mutants, file = [], ""
    for number, line in enumerate(table.splitlines(), 1):
        if line.startswith("mutant:"):
            mutants.append(Mutant(line[len("mutant:"):].strip()))
            file = ""
        elif line.startswith("caught by:") and mutants:
            mutants[-1].language, mutants[-1].test = line[len("caught by:"):].split()
        elif line[:1] in ("-", "+") and file:
            texts = mutants[-1].texts
            if line[0] == "-" and (not texts or texts[-1][2] or texts[-1][0] != file):
                texts.append([file, [], []])
            texts[-1]["-+".index(line[0]) + 1].append(line[1:])
        elif re.fullmatch(r"(\w+/)+\w+\.\w+", line):
            file = line
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"line {number}: \"{line}\" has no meaning here")
    for mutant in mutants:
        mutant.texts = [(file, "\n".join(old), "\n".join(new)) for file, old, new in mutant.texts]
    return mutants


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def complaints(mutants):
    for mutant in mutants:
        if mutant.language not in COMMANDS or not mutant.texts:
            yield f"{mutant.name}: needs a language, a test and a text"
        for file, old, _ in mutant.texts:
            count = read(os.path.join(ROOT, "bindings", file)).count(old)
            if count != 1:
                yield f"{mutant.name}: bindings/{file} has this text {count} times, not once:\n{old}"


def renew(source, target):
    """Copies a file that is another, so that little is compiled again, and what was mutated is."""
    if not os.path.exists(target) or read_bytes(source) != read_bytes(target):
        shutil.copyfile(source, target)


def copy():
    """The bindings and their tests."""
    os.makedirs(TREE, exist_ok=True)
    for name in ("bindings", "tests/bindings"):
        shutil.copytree(os.path.join(ROOT, name), os.path.join(TREE, name), copy_function=renew, dirs_exist_ok=True)
    for name in ("include", "samples"):  # what tests read beside them
        if not os.path.lexists(os.path.join(TREE, name)):
            os.symlink(os.path.join(ROOT, name), os.path.join(TREE, name))


def environment(library):
    folder = os.path.dirname(library)
    own = {"DISTAG_LIBRARY": library, "LD_LIBRARY_PATH": folder, "DISTAG_LIB_DIR": folder, "OPENBLAS_NUM_THREADS": "1",
           "PATH": "/usr/bin:/bin", "LUA_PATH": f"{TREE}/bindings/lua/?.lua;;", "PYTHONPATH": f"{TREE}/bindings/python",
           "CARGO_HOME": f"{TREE}/cargo", "CARGO_TARGET_DIR": f"{TREE}/target",
           "DISTAG_OP_CALLS": f"{TREE}/op_calls.rs",
           "GOCACHE": f"{TREE}/go", "GOPATH": f"{TREE}/gopath", "GOENV": "off", "GOPROXY": "off", "GOFLAGS": "-mod=mod",
           "PKG_CONFIG_PATH": TREE, "DISTAG_VALIDATE": "1"}
    with open(f"{TREE}/distag.pc", "w", encoding="utf-8") as file:
        file.write(f"Name: distag\nDescription: of a build folder\nVersion: 0\nLibs: -L{folder} -ldistag\n"
                   f"Cflags: -I{ROOT}/include\n")
    subprocess.run([sys.executable, "-B", f"{ROOT}/tests/bindings/rust/op_calls.py", ROOT, f"{TREE}/op_calls.rs"],
                   check=True)
    return {**os.environ, **own}


def ended(command, variables, seconds):
    """Status and stderr of a command of the shell; None and "hangs" for one that is not over in time, which is killed
    with all that it has started."""
    with subprocess.Popen(["sh", "-c", command], cwd=TREE, env=variables, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            said = process.communicate(timeout=seconds)[1]
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return None, "hangs"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def run(language, test, variables, seconds):
    """"", or the reason for which the test failed."""
    compile_it, run_it = (text.format(test=test, folder=variables["DISTAG_LIB_DIR"]) for text in COMMANDS[language])
    status, said = ended(compile_it, variables, COMPILE_SECONDS)
    if status != 0:
        return "does not compile: " + said[-2000:]
    status, said = ended(run_it, variables, seconds)
    return said if status is None else f"leaves with {status}" if status else ""


def main():
    mutants = parse(read(os.path.join(HERE, "bindings.txt")))
    problems = list(complaints(mutants))
    if problems or sys.argv[1:] == ["--check"]:
        print("\n".join(problems) or f"{len(mutants)} mutants of bindings fit")
        return 1 if problems else 0
    words = sys.argv[2:]
    chosen = [each for each in mutants if not words or any(word in each.name for word in words)]
    copy()
    variables = environment(os.path.realpath(sys.argv[1]))
    failed = 0
    for language, test in sorted({(each.language, each.test) for each in chosen}):
        reason = run(language, test, variables, LONGEST)
        if reason:
            print(f"without a mutant: {language} {test} {reason}")
            failed += 1
    for mutant in chosen:
        for file, old, new in mutant.texts:
            path = os.path.join(TREE, "bindings", file)
            text = read(path)
            with open(path, "w", encoding="utf-8") as into:
                into.write(text.replace(old, new))
        reason = run(mutant.language, mutant.test, variables, SECONDS)
        is_noticed = reason and not reason.startswith("does not compile")
        failed += not is_noticed
        print(f"{'noticed' if is_noticed else 'SURVIVES'}: {mutant.name}{': ' + reason if reason else ''}", flush=True)
        copy()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
