"""Rules of the code that a text search can check. usage: check_rules.py REPOSITORY"""
import itertools
import os
import re
import sys

ROOTS = ("src", "include", "samples", "tests", "schemas", "tools")
SOURCES = (".h", ".c", ".cpp", ".fbs")
MAX_LINES = 600
MAX_TEST_LINES = 900
MAX_SAMPLE_LINES = 300

# Where it holds, what must not stand there, and why.
RULES = [
    (r"^(src|tests|samples|tools)/", r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(", "wait for a condition, not for time"),
    (r"^src/", r"\bsystem_clock\b|\bgettimeofday\b|\btime\s*\(\s*(NULL|nullptr|0)\s*\)", "no wall clock: take a Clock"),
    (r"^src/", r"\b(s?rand|random_device|mt19937)\s*[({;]|std::random_device", "no hidden randomness: take a seed"),
    (r"^src/", r"\bgetInstance\b", "no singletons"),
    (r"^src/", r"\b(abort\s*\(\s*|(_?exit|terminate)\s*\(\s*\w*\s*)\)\s*;", "the host never dies because of us"),
    (r"^src/", r"\b(printf|puts)\s*\(|std::(cout|cerr|clog)\b|\bfprintf\s*\(", "no output: take a log sink"),
    (r"^src/(?!ops/|tensor/)", r"\bsetenv\s*\(|\bsetlocale\s*\(|\bfesetround\s*\(", "no change of the host's process state"),
    (r"^src/(?!base/file_size)", r"\b(ftruncate|fallocate|posix_fallocate|pwrite|ofstream|fopen|fwrite)\b|(?<!\w)::write\s*\(",
     "files grow by base/file_size.h alone: SIGXFSZ ends the host"),
    (r"^src/(?!base/fork_handlers)", r"\bpthread_atfork\b", "a step of the table in base/fork_handlers.cpp, which keeps the order"),
    (r"^src/(?!base/(own_descriptors|shared_memory)\.cpp)", r"(?m)^(constinit |static |inline )*(Mutex|std::mutex) \w+",
     "a forked child may find it locked for ever: take ProcessState (base/process_state.h)"),
    (r"^(src|tools)/", r"\b[io]?fstream\b|\b(fopen|freopen|tmpfile|popen)\b", "programs that the host starts get the "
     "descriptor: open by base/regular_file.h, base/data_file.h or tools/files.h"),
    (r"^(src|tools)/(?!run/run\.cpp)", r"\bO_(RDONLY|WRONLY|RDWR)\b(?![^;]*CLOEXEC)|"
     r"\b(socket\s*\((?=[^;)]*SOCK_)|(eventfd|epoll_create1|timerfd_create|memfd_create|accept4|pipe2|mkostemp)\s*\()"
     r"(?![^;]*CLOEXEC)|(?<![\w.>:])(::)?(pipe|epoll_create|mkstemp|dup)\s*\(|\bF_DUPFD\b",
     "with CLOEXEC: programs that the host starts get the descriptor"),
    (r"^src/transport/", r"\bvirtual\b(?! ~)[^;{]*\{", "a transport that forgets it would promise less in silence: = 0"),
    (r"^src/group/", r"\bvirtual\b(?! ~)[^;{]*\bconst\s*\{", "a rendezvous that forgets it would answer in silence: = 0"),
    (r"^src/capi/", r"(?m)^  HostData \w+\s*[(=]", "its destroy may run after the guard: take GivenData (capi/boundary.h)"),
    (r"^src/.*\.h$", r"(?s)\A(?!.*#pragma once)", "a header starts with #pragma once"),
    (r"^src/", r"\bcatch \([^)]*\) \{\s*\}", "an empty catch says in a comment why nothing is to be done"),
    (r"^tests/", r"\bTEST_[FP]\(\w*(?<!Test),", "the name of a fixture ends in Test"),
    (r"", r"\b(TODO|FIXME|XXX|HACK)\b", "an issue, not a note in the code"),
]
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
STRING = re.compile(r'"(\\.|[^"\\\n])*"')


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def check_text(path, text):
    complaints = []
    limits = {"tests": MAX_TEST_LINES, "samples": MAX_SAMPLE_LINES}
    limit = limits.get(path.split("/")[0], MAX_LINES)
    if text.count("\n") > limit and path != "include/distag.h":
        complaints.append(f"{path}: {text.count(chr(10))} lines, more than {limit}")
    code = STRING.sub(blank, COMMENT.sub(blank, text))
    for where, what, why in RULES:
        if not re.search(where, path):
            continue
        for match in re.finditer(what, text if "TODO" in what or "catch" in what else code):
            line = text.count("\n", 0, match.start()) + 1
            complaints.append(f"{path}:{line}: `{match.group(0).strip()}`: {why}")
    if path.startswith("src/capi/"):
        complaints += check_boundary(path, text)
    return complaints


# A function of the header with its body.
FUNCTION = re.compile(r"^(?:const )?\w+[ *]+(distag_\w+)\([^;{}]*\) \{(.*?)(?:\n|(?<=; ))\}$", re.M | re.S)
SCOPE = re.compile(r"\b(guard|guard_or|release_handle)\(|\b__func__\b")
# What reads a handle that the caller holds, or memory of the library, and nothing else.
READS = re.compile(r"\b(peek|retain_handle)\(")
READERS = {"distag_get_api", "distag_get_version", "distag_get_handle_count", "distag_get_misuse_count",
           "distag_status_get_name", "distag_error_set", "distag_get_op_count", "distag_dtype_get_size",
           "distag_tensor_as_value", "distag_rref_as_value"}


def check_boundary(path, text):
    """A thread is not cancelled within a function of the header: src/capi/boundary.h."""
    complaints = []
    for match in FUNCTION.finditer(COMMENT.sub(blank, text)):
        name, body = match.groups()
        if name in READERS or SCOPE.search(body) or READS.search(body):
            continue
        line = text.count("\n", 0, match.start()) + 1
        complaints.append(f"{path}:{line}: `{name}`: its work belongs into a guard (capi/boundary.h)")
    return complaints


# A struct of src/ops with a function that is compiled for each instruction set, and what it stands in.
STRUCT = re.compile(r"^(\s*)(?:struct|class) (\w+)")
RUN = re.compile(r"\bstatic void (run|fill)\(")


def kernels_of(text):
    outermost = None
    for line in COMMENT.sub(blank, text).split("\n"):
        found = STRUCT.match(line)
        if found and not found.group(1):
            outermost = found.group(2)
        if RUN.search(line) and "DISTAG_INLINE" in line and outermost:
            yield outermost


def check_kernels(files, table):
    """Arithmetic is an expression of xtensor; a loop of ours has a row of the table (src/ops/README.md) with a reason."""
    complaints = []
    known = set()
    for line in table.split("\n"):
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name, file in itertools.product(re.findall(r"`(\w+)`", cells[0]), cells[1].split(", ")):
            known.add((name, file))
            if not file.startswith("../") and not re.search(rf"\b{name}\b", files.get(file, "")):
                complaints.append(f"src/ops/README.md: `{name}` is not in {file}: take the row out")
            if not all(cells[3:6]) and not cells[6]:
                complaints.append(f"src/ops/README.md: `{name}` has neither figures nor another reason")
    for file, text in sorted(files.items()):
        for name in sorted(set(kernels_of(text))):
            if (name, file) not in known:
                complaints.append(f"src/ops/{file}: `{name}`: write it as an expression of xtensor, or say why not in "
                                  "src/ops/README.md")
    return complaints


def read_kernels(repository):
    folder = os.path.join(repository, "src/ops")
    files = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            files[name] = file.read()
    table = files.pop("README.md")
    return check_kernels(files, table)


def main():
    repository = sys.argv[1]
    complaints = read_kernels(repository)
    count = 0
    for root in ROOTS:
        for folder, _, names in os.walk(os.path.join(repository, root)):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                count += 1
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    complaints += check_text(os.path.relpath(path, repository), file.read())
    print("\n".join(complaints))
    print(f"{count} files, {len(complaints)} complaints")
    return 1 if complaints or not count else 0


if __name__ == "__main__":
    sys.exit(main())
