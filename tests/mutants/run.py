#!/usr/bin/python3
"""Plants each fault of mutants.txt and runs the test that has to notice it.

usage: run.py [--jobs N] [WORDS...]   mutants whose names have one of the WORDS, else all; and the suites without any
       run.py --try WORDS...          which tests of all suites notice those mutants
       run.py --check [ROOT]          only whether the table fits the sources

All of them are in one build, in build/mutants: an original E stands there beside its mutant, and the variable
DISTAG_MUTANT says which of the two runs. Exit code 1 if one survives, if a text of the table is not there exactly once,
if its mutant has a word that the sources do not, so that no suite would compile, or if a suite fails without a mutant.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
from cells import all_cells  # noqa: E402

SUITES = ("unit_base", "unit_session", "unit_group", "unit_rpc", "unit_dautograd", "unit_rref", "unit_worker",
          "sim_tests", "unit_transport", "unit_wire", "unit_store", "unit_spmd", "contract_transport", "spmd_tests",
          "unit_ops", "unit_optim", "unit_layout")
# A test of the matrix of faults: words of the cells, without blanks, with a colon between them.
MATRIX = "faults"
SECONDS = 60  # for a test that takes one or two; one that hangs has noticed. A whole suite has ten times that
SWITCH = """#pragma once
#include <cstdlib>
namespace distag {
// Whether the mutant of this number is on.
inline bool mutant_is_on(unsigned long number) {
  static const unsigned long chosen = [] {
    const char* text = std::getenv("DISTAG_MUTANT");
    return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  }();
  return number == chosen;
}
}  // namespace distag
"""


class Mutant:
    def __init__(self, name):
        self.name = name
        self.number = zlib.crc32(name.encode())  # the same wherever it stands in the table
        self.suite = self.filter = self.reason = ""
        self.texts = []  # (file, original, mutated)


def parse(table):
    """The mutants of a table; ValueError for what is none."""
    mutants = []
    file = ""
    for number, line in enumerate(table.splitlines(), 1):
        word, _, rest = line.partition(":")
        if line.startswith("#") or not line.strip():
            continue
        if word == "mutant":
            mutants.append(Mutant(rest.strip()))
            file = ""
        elif not mutants:
            raise ValueError(f"line {number}: no mutant has begun")
        elif word == "caught by":
            mutants[-1].suite, mutants[-1].filter = rest.split()
        elif word == "equivalent":
            mutants[-1].reason = rest.strip()
        elif line[0] in "+-" and file:
            texts = mutants[-1].texts
            if line[0] == "-" and (not texts or texts[-1][2] or texts[-1][0] != file):
                texts.append([file, [], []])
            texts[-1]["-+".index(line[0]) + 1].append(line[1:])
        elif re.fullmatch(r"(\w+/)+\w+\.(h|cpp)", line):
            file = line
        else:
            raise ValueError(f"line {number}: \"{line}\" has no meaning here")
    for mutant in mutants:
        mutant.texts = [(file, "\n".join(old), "\n".join(new)) for file, old, new in mutant.texts]
    return mutants


def words_of(text):
    return set(re.findall(r"\b[A-Za-z_]\w*", text))


class Words:
    """The words that a planted text may use: those of the sources, and of fields those of the class that it is in."""
    def __init__(self, sources):
        self.sources = sources
        self.all = set().union({"MUTANT"}, *map(words_of, sources.values()))

    def unknown(self, file, text):
        stem = os.path.splitext(file)[0]
        fields = words_of(self.sources.get(stem + ".h", "") + self.sources.get(stem + ".cpp", ""))
        code = re.sub(r'"(\\.|[^"\\])*"|//.*', " ", text)
        return sorted(word for word in words_of(code)
                      if word not in (fields if word.endswith("_") else self.all))


def apply(mutants, sources):
    """The sources ({file: text}) with all mutants in them, and complaints."""
    complaints = []
    words = Words(sources)
    places = {}  # by file: (begin, end, name, text)
    for mutant in mutants:
        if not mutant.texts or bool(mutant.suite) == bool(mutant.reason):
            complaints.append(f"{mutant.name}: needs a text, and a test or a reason")
        if sum(other.name == mutant.name for other in mutants) != 1:
            complaints.append(f"{mutant.name}: the name is not its own")
        for file, old, new in mutant.texts:
            count = sources.get(file, "").count(old)
            if count != 1:
                complaints.append(f"{mutant.name}: src/{file} has this text {count} times, not once:\n{old}")
            elif not re.search(r"\bMUTANT\b", new):
                complaints.append(f"{mutant.name}: MUTANT is not in its text")
            elif unknown := words.unknown(file, new):
                complaints.append(f"{mutant.name}: cannot compile, as src/{file} has no {', '.join(unknown)}")
            else:
                begin = sources[file].index(old)
                switched = re.sub(r"\bMUTANT\b", f"::distag::mutant_is_on({mutant.number}UL)", new)
                places.setdefault(file, []).append((begin, begin + len(old), mutant.name, switched))
    mutated = dict(sources)
    for file, found in places.items():
        text = sources[file]
        limit = len(text)
        for begin, end, name, switched in sorted(found, reverse=True):
            if end > limit:
                complaints.append(f"{name}: its text in src/{file} is also that of another mutant")
            text = text[:begin] + switched + text[end:]
            limit = begin
        mutated[file] = '#include "base/mutant.h"\n' + text
    return mutated, complaints


def read_sources(root):
    sources = {}
    for folder, _, names in os.walk(os.path.join(root, "src")):
        for name in names:
            if name.endswith((".h", ".cpp")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    sources[os.path.relpath(path, os.path.join(root, "src"))] = file.read()
    return sources


def missing_tests(mutants, root):
    """Complaints of mutants whose test is not there, or in another suite."""
    tests = {}
    for suite in SUITES:
        folder = os.path.join(root, "tests", suite.replace("unit_", "unit/").replace("sim_tests", "sim")
                              .replace("contract_transport", "contract").replace("spmd_tests", "spmd"))
        text = ""
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text += file.read()
        found = re.findall(r"\b(?:TEST(?:_[FP])?|RC_GTEST_\w*PROP)\(\s*(\w+),\s*(\w+)", text)
        tests[suite] = {f"{case}.{name}" for case, name in found}
    complaints = []
    for mutant in mutants:
        if mutant.suite == MATRIX:
            if not any(all(word in str(cell) for word in mutant.filter.split(":")) for cell in all_cells(True)):
                complaints.append(f"{mutant.name}: no cell of the matrix has {mutant.filter}")
            continue
        for wanted in mutant.filter.split(":") if mutant.suite else []:
            pattern = re.escape(re.sub(r"^\w+/|/.*$", "", wanted)).replace(r"\*", ".*")
            if not any(re.fullmatch(pattern, name) for name in tests.get(mutant.suite, ())):
                complaints.append(f"{mutant.name}: {mutant.suite} has no test {wanted}")
    return complaints


def write(path, text):
    """Leaves a file that has this text already as it is, so that it is not compiled again."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def needed(mutants):
    """Targets of the build that tell of these mutants."""
    suites = {mutant.suite for mutant in mutants}
    if "" in suites:
        return (*SUITES, "faults_participant")
    return [suite for suite in SUITES if suite in suites] + ["faults_participant"] * (MATRIX in suites)


def build(sources, targets):
    """The project as it is, with these sources, in build/mutants; returns the folder of the suites."""
    tree = os.path.join(ROOT, "build", "mutants")
    os.makedirs(tree, exist_ok=True)
    for name in os.listdir(ROOT):
        link = os.path.join(tree, name)
        if name not in ("src", "build") and not name.startswith(".") and not os.path.lexists(link):
            os.symlink(os.path.join(ROOT, name), link)
    sources = dict(sources)
    sources["base/mutant.h"] = SWITCH
    for name in ("layers.txt", "README.md"):
        with open(os.path.join(ROOT, "src", name), encoding="utf-8") as file:
            sources[name] = file.read()
    for folder, _, names in os.walk(os.path.join(tree, "src")):
        for name in names:
            if os.path.relpath(os.path.join(folder, name), os.path.join(tree, "src")) not in sources:
                os.remove(os.path.join(folder, name))
    for name, text in sources.items():
        write(os.path.join(tree, "src", name), text)
    for command in (["cmake", "--preset", "dev"], ["cmake", "--build", "build/dev", "--target", *targets]):
        done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout)
    return os.path.join(tree, "build", "dev", "tests")


def run_matrix(folder, chosen, environment):
    """Names of the cells that fail."""
    command = [sys.executable, "-B", os.path.join(ROOT, "tests", "faults", "matrix.py"),
               os.path.join(folder, "faults", "faults_participant"), "--full", *chosen.split(":")]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if " 0 cells" in " " + done.stdout:
        sys.exit(f"no cell of the matrix has {chosen}")
    return re.findall(r"^FAILED +\S+ s (.*)", done.stdout, re.M)


def run(folder, suite, chosen, mutant=None):
    """Names of the tests that fail; ["..."] says that all of it crashed or hung."""
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", DISTAG_MUTANT=str(mutant.number if mutant else 0))
    if suite == MATRIX:
        return run_matrix(folder, chosen, environment)
    command = [os.path.join(folder, suite), "--gtest_brief=1", f"--gtest_filter={chosen}"]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS if chosen != "*" else 10 * SECONDS, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return ["it hangs"]
    if "[==========] 0 tests" in done.stdout:
        sys.exit(f"{suite} has no test {chosen}")
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (\w+(?:/\w+)?\.\w+(?:/\w+)?)", done.stdout, re.M)))
    return failed or (["it crashes"] if done.returncode != 0 else [])


def judge(folder, mutant):
    """(Whether that is as the table says, its line)."""
    begin = time.monotonic()
    tests = [(mutant.suite, mutant.filter)] if mutant.suite else [(suite, "*") for suite in SUITES]
    failed = [name for suite, chosen in tests for name in run(folder, suite, chosen, mutant)]
    verdict = ("caught" if failed else "SURVIVES") if mutant.suite else ("NOT EQUIVALENT" if failed else "equivalent")
    return verdict.islower(), f"{verdict:10} {time.monotonic() - begin:5.1f} s  {mutant.name}: {', '.join(failed[:3])}"


def try_out(folder, mutant):
    failed = [f"{suite} {name}" for suite in SUITES for name in run(folder, suite, "*", mutant)]
    return bool(failed), f"{mutant.name}\n" + "".join(f"  {name}\n" for name in failed or ["nobody notices"])


def main():
    arguments = sys.argv[1:]
    if arguments and arguments[0].startswith("-") and arguments[0] not in ("--jobs", "--try", "--check"):
        print(__doc__, file=sys.stderr)  # else a wrong word starts a run of an hour
        sys.exit(0 if arguments[0] in ("-h", "--help") else 2)
    with open(os.path.join(HERE, "mutants.txt"), encoding="utf-8") as file:
        mutants = parse(file.read())
    if arguments[:1] == ["--check"]:
        root = arguments[1] if len(arguments) > 1 else ROOT
        _, complaints = apply(mutants, read_sources(root))
        complaints += missing_tests(mutants, ROOT)
        print("\n".join(complaints) or f"{len(mutants)} mutants, all texts and tests found")
        sys.exit(1 if complaints else 0)
    jobs = 2
    if arguments[:1] == ["--jobs"]:
        jobs, arguments = int(arguments[1]), arguments[2:]
    is_trial = arguments[:1] == ["--try"]
    words = arguments[1:] if is_trial else arguments
    mutated, complaints = apply(mutants, read_sources(ROOT))
    if complaints:
        sys.exit("\n".join(complaints))
    chosen = [mutant for mutant in mutants if not words or any(word in mutant.name for word in words)]
    folder = build(mutated, needed([Mutant("")] if is_trial else chosen))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for good, line in pool.map(lambda mutant: (try_out if is_trial else judge)(folder, mutant), chosen):
            print(line, flush=True)
            bad += not good
    if not words:
        for suite in SUITES:
            for name in run(folder, suite, "*"):
                print(f"{suite} fails without a mutant: {name}")
                bad += 1
    print(f"{len(chosen)} mutants, {bad} complaints")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
