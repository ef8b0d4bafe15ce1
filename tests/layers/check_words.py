"""Turns of phrase that stop a reader, comments without a subject, and entries of the changelog that are too long.
usage: check_words.py REPOSITORY

Documents, the header, comments and texts of src, and comments of tests, tools, samples, bindings and schemas have none of
the words. A comment begins with none of the words of BEGINNINGS: it names what it is about."""
import glob
import os
import re
import sys

WORDS = re.compile(r"\b([Ww]homs?|is none(?! of the)|[Nn]obody|tells? of|told of|so many|as far as|but for|the own|reckon\w*|"
                   r"the word of|its like|(?:let|lets) in)\b")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "src/README.md", "samples/README.md",
             "tests/README.md", "docs/*.md", "bindings/*/README.md", "include/distag.h")
BEGINNINGS = re.compile(r"(?://+|/\*+)\s*((?:Of|That|Those|One|It|Where|What|Who|Which|Whose|Such|So)\b[^.]{0,40})")
WITH_COMMENTS = ("include", "src", "tests", "tools", "samples", "bindings", "schemas", "docs")
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


def prose_of_code(text, with_texts):
    """Comments of a source, and its texts if they count, at their lines."""
    kept = [" "] * len(text)
    for match in re.finditer(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", text, re.S):
        if with_texts or match.group(0).startswith("/"):
            kept[match.start() : match.end()] = match.group(0)
    return "".join("\n" if old == "\n" else new for old, new in zip(text, kept))


def beginnings(path, text):
    """(place, words) for each first line of a comment that begins so; a line of // below another one goes on with it."""
    is_within = False
    for line, code in enumerate(text.split("\n"), 1):
        literals = re.sub(r"\"(?:\\.|[^\"\\])*\"", lambda literal: " " * len(literal.group(0)), code)
        is_whole = literals.lstrip().startswith("//")
        match = BEGINNINGS.search(literals)
        if match and not (is_whole and is_within):
            yield f"{path}:{line}: a comment begins \"{match.group(1)}\""
        is_within = "//" in literals


def check(documents, sources):
    return [each for path, text in documents for each in found(path, text)] + \
           [each for path, text in sources for each in found(path, prose_of_code(text, path.startswith("src/")))] + \
           [each for path, text in sources for each in beginnings(path, text)]


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
    cases = [("It is for nobody.\n", "", 1), ("`nobody` knows\n", "", 0), ("", "// A peer tells of it\n", 1),
             ("", "int so_many; // plain\n", 0), ("", "fail(\"the own key\");\n", 1), ("", "// A word that tells of whom\n", 2),
             ("", "// It is so.\n", 1), ("", "// A word\n// It is so.\n", 0), ("", "int a;  // of it\nint b;  // One more\n", 1),
             ("", "int a;  // A word\n        // That goes on\n", 0), ("", "/* Where it is */\n", 1), ("", "call(\"// It is\");\n", 0),
             ("", "// Italian\n", 0), ("", "// A word\n\n// Of it\n", 1)]
    cases = [(document, "src/a.cpp", source, expected) for document, source, expected in cases]
    cases += [("", "tests/a.cpp", "// A peer tells of it\n", 1), ("", "schemas/a.fbs", "a: int;  // for nobody\n", 1),
              ("", "tests/a.c", "/* A word\n * for nobody */\n", 1), ("", "tools/a.cpp", "fail(\"the own key\");\n", 0),
              ("", "tests/a.cpp", "call('\"', \"// nobody\");  // A word\n", 0), ("", "tests/a.cpp", "call('\"');  // to nobody\n", 1)]
    for document, path, source, expected in cases:
        got = check([("a.md", document)], [(path, source)])
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


def files(root, folder):
    for place, folders, names in os.walk(os.path.join(root, folder)):
        folders[:] = [each for each in folders if each != "released"]  # frozen
        yield from (os.path.relpath(os.path.join(place, name), root) for name in names
                    if name.endswith((".h", ".hpp", ".c", ".cpp", ".fbs")))


def main():
    root = sys.argv[1]
    documents = [os.path.relpath(path, root) for pattern in DOCUMENTS for path in glob.glob(os.path.join(root, pattern))]
    sources = list(read(root, [path for folder in WITH_COMMENTS for path in files(root, folder)]))
    (_, changes), = read(root, ["CHANGELOG.md"])
    complaints = [*self_test(), *check_changes(changes), *check(list(read(root, documents)), sources)]
    print("\n".join(complaints))
    print(f"{len(documents)} documents, {len(sources)} sources, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
