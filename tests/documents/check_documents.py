"""Checks that every path and name in the documents exists, and every file that a comment cites.
The package of documents has each sample that samples/README.md names. usage: check_documents.py REPOSITORY"""
import fnmatch
import glob
import os
import re
import sys

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "RELEASING.md", "src/README.md", "samples/README.md", "tests/README.md", "docs/*.md",
             "bindings/*/README.md")
# Documents name paths from the root of the repository; these also from a folder below it.
STARTS = {"src/README.md": ("src/",), "samples/README.md": ("samples/",), "tests/README.md": ("tests/",), "docs/parity.md": ("tests/",)}
SOURCES = ("include", "src", "tests", "samples", "schemas", "cmake", "scripts", "bindings", "tools")
# Stand for any file, or for what another project names.
PLACEHOLDERS = {"x.h", "x.cpp", "tests/unit/<module>/x_test.cpp"}
EXTENSION = r"\.(?:md|fbs|h|c|cpp|py|sh|txt|cmake|proto|expected|clang-format|clang-tidy)"


def tree(root):
    """Every file and folder of the repository by its path, builds aside."""
    found = set()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", "build", "__pycache__")]
        relative = os.path.relpath(folder, root)
        found.update(os.path.normpath(os.path.join(relative, name)) for name in folders + files)
    return found


def words(root):
    """Every word of the sources, documents and the tests of documents aside."""
    found = set()
    paths = [os.path.join(root, name) for name in ("CMakeLists.txt", "CMakePresets.json")]
    for start in SOURCES:
        for folder, folders, files in os.walk(os.path.join(root, start)):
            folders[:] = [name for name in folders if name not in ("__pycache__", "documents", "corpus", "data")]
            paths += [os.path.join(folder, name) for name in files if not name.endswith(".md")]
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            found.update(re.findall(r"\w+", file.read()))
    return found


def exists(path, document, paths):
    """Whether a path of a document is in the tree; <module>, X.Y and * stand for any name. A name alone may be anywhere."""
    pattern = re.escape(re.sub(r"<\w+>|X\.Y", "*", path.rstrip("/"))).replace(r"\*", "[^/]*")
    starts = [re.escape(start) for start in ("",) + STARTS.get(document, ())]
    if "/" not in path:
        starts.append(r"(?:.*/)?")
    return any(re.fullmatch(start + pattern, each) for start in starts for each in paths)


def spans(text):
    """What is code in a document: each inline span, and each word of a command."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    blocks = [body for language, body in fenced if language == "sh"] + re.findall(r"^ {4,}\S.*$", plain, re.M)
    plain = re.sub(r"^ {4}\S.*$", "", plain, flags=re.M)
    for span in re.findall(r"`([^`\n]+)`", plain):
        yield from [span] if re.fullmatch(r"\S+", span) else re.findall(r"[^\s;]+", span)
    for block in blocks:
        for line in block.splitlines():
            for word in line.split("#")[0].split():
                if "/" in word:
                    yield word


def is_path(span):
    return not re.fullmatch(EXTENSION, span) and ("/" in span or re.search(EXTENSION + "$", span)) and not (
        "://" in span or span.startswith(("/", "-", "$", "build/", "<", "../", "./")) or re.search(r"[=$:\"'|()\\{}]", span))


def check_document(document, text, paths, known):
    for span in sorted(set(spans(text))):
        span = span.rstrip(".,")
        if span in PLACEHOLDERS:
            continue
        if is_path(span):
            if not exists(span, document, paths):
                yield f"{document}: there is no {span}"
        elif re.fullmatch(r"_?[A-Za-z]\w{2,}", span) and span not in known and span.lower() not in known:
            if re.search(r"_|[a-z][A-Z]|^[A-Z][a-z]|^DISTAG", span) and not span.startswith("_"):
                yield f"{document}: nothing is called {span}"


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def comments(text, path):
    if path.endswith((".py", ".sh", ".cmake", ".txt")):
        return re.findall(r"(?:^|\s)#[^\n]*", text)
    return re.findall(r"//[^\n]*|/\*.*?\*/", text, re.S)


def check_comments(path, text, names):
    for comment in comments(text, path):
        for cited in re.findall(r"(?<![\w./<*-])((?:\w+/)*\w+" + EXTENSION + r")\b(?!/)", comment):
            if os.path.basename(cited) not in names and cited not in PLACEHOLDERS:
                yield f"{path}: a comment cites {cited}, which is not there"
        for cited in re.findall(r"\b(?:see|in) (?:the )?(DESIGN|STYLE|SPEED|PEER|HOSTS)\b|\b(DESIGN) of\b", comment):
            yield f"{path}: a comment cites {cited[0] or cited[1]}, which is not there"


def check(root):
    paths = tree(root)
    known = words(root) | {"unit_" + os.path.basename(path) for path in paths if path.startswith("tests/unit/")}
    names = {os.path.basename(path) for path in paths}
    for pattern in DOCUMENTS:
        found = sorted(glob.glob(os.path.join(root, pattern)))
        if not found:
            yield f"there is no document {pattern}"
        for path in found:
            with open(path, encoding="utf-8") as file:
                yield from check_document(os.path.relpath(path, root), file.read(), paths, known)
    yield from check_package(read(root, "samples/README.md"), read(root, "debian/distag-doc.install"))
    for path in sorted(paths):
        if not path.startswith(tuple(start + "/" for start in ("include", "src", "samples", "schemas", "tests"))):
            continue
        if path.endswith((".h", ".c", ".cpp", ".fbs")) and os.path.isfile(os.path.join(root, path)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                yield from check_comments(path, file.read(), names)


def check_package(table, installed):
    """Complaints about samples in a table of samples/README.md that no line of debian/distag-doc.install installs."""
    sources = [line.split()[0] for line in installed.splitlines() if line.strip()]
    for path in (f"samples/{name}" for name in re.findall(r"^\| `([^`]+)` \|", table, re.M)):
        if not any(fnmatch.fnmatchcase(path, source) or path.startswith(source + "/") for source in sources):
            yield f"debian/distag-doc.install does not install {path}, of which samples/README.md has a row"


def self_test():
    """What does not exist is found; what does is not."""
    paths = {"tests", "tests/unit", "tests/unit/base", "src", "src/capi", "src/capi/table.cpp"}
    known = {"distag_call", "Loop"}
    names = {os.path.basename(path) for path in paths}
    cases = [
        ("`tests/unit/<module>` `src/capi/table.cpp` `table.cpp` `distag_call` `Loop` `tcp://host`", 0),
        ("`tests/fault`", 1), ("`src/capi/api_table.cpp`", 1), ("`api_table.cpp`", 1), ("`distag_no_such`", 1),
        ("`NoSuchClass`", 1), ("    tests/nothing.sh       # runs it\n", 1), ("```sh\ntests/nothing.sh\n```\n", 1),
        ("```c\na/b;\n```\n`src/capi/table.cpp`\n```sh\ntrue\n```\n", 0),
    ]
    for text, expected in cases:
        found = list(check_document("README.md", text, paths, known))
        if len(found) != expected:
            yield f"{text!r}: {expected} complaint(s) were expected, got {found}"
    rows = "| `a.c` | one |\n| `hosts/b` | a game |\n"
    for lines, expected in (("samples/*.c x\nsamples/hosts x", 0), ("samples/*.c x", 1), ("samples/hosts x", 1)):
        found = list(check_package(rows, lines))
        if len(found) != expected:
            yield f"installed by {lines!r}: {expected} complaint(s) were expected, got {found}"
    for text, expected in (("// see table.cpp\n", 0), ("// see schemas/gone.fbs\n", 1), ("/* see DESIGN of it */", 1)):
        found = list(check_comments("src/x.h", text, names))
        if len(found) != expected:
            yield f"{text!r}: {expected} complaint(s) were expected, got {found}"


def main():
    complaints = list(self_test()) + list(check(sys.argv[1]))
    for complaint in complaints:
        print(complaint)
    print(f"{len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
