"""Turns of phrase that stop a reader, and entries of the changelog that are too long. usage: check_words.py REPOSITORY

The documents and the header have none. Comments and texts of src may have as many as are counted here, and a change that
removes some lowers the number: it never rises."""
import glob
import os
import re
import sys

MOST_IN_SRC = 384
WORDS = re.compile(r"\b([Ww]homs?|is none(?! of the)|[Nn]obody|tells? of|told of|so many|as far as|but for|the own|reckon\w*|"
                   r"the word of|its like|(?:let|lets) in)\b")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "src/README.md", "samples/README.md",
             "tests/README.md", "docs/*.md", "bindings/*/README.md", "include/distag.h")
MOST_LINES_OF_CHANGES, MOST_WORDS_OF_CHANGE = 90, 30  # of the version that is not released
# Names of tests in tables, quotations, and English that the pattern meets by chance.
EXCEPTIONS = ("WaitsForNobody",)


def found(path, text):
    """(place, words) for each; names in code are no prose."""
    prose = re.sub(r"`[^`\n]*`", lambda code: " " * len(code.group(0)), text) if path.endswith(".md") else text
    for match in WORDS.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        if not any(word in text.split("\n")[line - 1] for word in EXCEPTIONS):
            yield f"{path}:{line}: \"{match.group(0)}\""


def prose_of_code(text):
    """Comments and texts of a source, at their lines."""
    kept = [" "] * len(text)
    for match in re.finditer(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", text, re.S):
        kept[match.start() : match.end()] = match.group(0)
    return "".join("\n" if old == "\n" else new for old, new in zip(text, kept))


def check(documents, sources, most):
    complaints = [each for path, text in documents for each in found(path, text)]
    in_src = [each for path, text in sources for each in found(path, prose_of_code(text))]
    if len(in_src) > most:
        complaints += in_src + [f"src: {len(in_src)} of these words, at most {most} are allowed"]
    if len(in_src) < most:
        complaints.append(f"src: {len(in_src)} of these words are left: set MOST_IN_SRC to that")
    return complaints


def check_changes(text):
    section = re.search(r"^## \S+ \(unreleased\)\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    lines = section.group(1).strip().split("\n") if section else []
    if len(lines) > MOST_LINES_OF_CHANGES:
        yield f"CHANGELOG.md: {len(lines)} lines, at most {MOST_LINES_OF_CHANGES} are allowed"
    for line in lines:
        if not re.match(r"- |### (Added|Changed|Fixed|Security)$|$", line):
            yield f"CHANGELOG.md: neither an entry of one line nor Added, Changed, Fixed or Security: {line[:60]}"
        if len(line.split()) - 1 > MOST_WORDS_OF_CHANGE:
            yield f"CHANGELOG.md: {len(line.split()) - 1} words, at most {MOST_WORDS_OF_CHANGE} are allowed: {line[:60]}"


def self_test():
    cases = [(("It is for nobody.\n", ""), 0, 1), (("`nobody` knows\n", ""), 0, 0), (("", "// tells of it\n"), 0, 2),
             (("", "// tells of it\n"), 1, 0), (("", "int so_many; // plain\n"), 0, 0), (("", "// plain\n"), 1, 1),
             (("", "fail(\"the own key\");\n"), 1, 0)]
    for (document, source), most, expected in cases:
        got = check([("a.md", document)], [("src/a.cpp", source)], most)
        if len(got) != expected:
            yield f"self test: {expected} complaints were expected, got {got}"
    head = "## 1.0.0 (unreleased)\n\n### Added\n\n"
    for text, expected in ((head + "- a\n", 0), (head + "- a\n  b\n", 1), (head + "- " + "a " * 31 + "\n", 1),
                           (head + "- a\n" * 89 + "## 0.9.0 (2000-01-01)\n" + "- a\n" * 9, 1), ("## 1.0.0 (2000-01-01)\nany\n", 0)):
        got = list(check_changes(text))
        if len(got) != expected:
            yield f"self test of changes: {expected} complaints were expected, got {got}"


def read(root, paths):
    for path in sorted(paths):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            yield path, file.read()


def main():
    root = sys.argv[1]
    documents = [os.path.relpath(path, root) for pattern in DOCUMENTS for path in glob.glob(os.path.join(root, pattern))]
    sources = [os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(os.path.join(root, "src"))
               for name in names if name.endswith((".h", ".cpp"))]
    (_, changes), = read(root, ["CHANGELOG.md"])
    complaints = [*self_test(), *check_changes(changes), *check(list(read(root, documents)), list(read(root, sources)), MOST_IN_SRC)]
    print("\n".join(complaints))
    print(f"{len(documents)} documents, {len(sources)} sources, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
