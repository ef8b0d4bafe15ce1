"""Turns of phrase that stop a reader, and entries of the changelog that are too long. usage: check_words.py REPOSITORY

The documents and the header have none. Comments and texts of a file of src may have as many as words.txt says, one file a
line, and a file without a row has none: rows are lowered and taken out, and never rise."""
import glob
import os
import re
import sys

TABLE = "tests/layers/words.txt"
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


def parse(table):
    rows = (line.split() for line in table.splitlines() if line and not line.startswith("#"))
    return {path: int(count) for path, count in rows}


def check(documents, sources, table):
    rows = parse(table)
    complaints = [each for path, text in documents for each in found(path, text)]
    if list(rows) != sorted(rows):
        complaints.append(f"{TABLE}: its rows are not sorted")
    for path, text in sources:
        in_file, allowed = list(found(path, prose_of_code(text))), rows.get(path, 0)
        if len(in_file) > allowed:
            complaints += in_file + [f"{path}: {len(in_file)} of these words, at most {allowed} are allowed"]
        elif path in rows and (len(in_file) < allowed or allowed == 0):
            how = f"lower its row of {TABLE} to that" if in_file else f"take its row out of {TABLE}"
            complaints.append(f"{path}: {len(in_file)} of these words are left: {how}")
    gone = rows.keys() - {path for path, _ in sources}
    return complaints + [f"{TABLE}: there is no {path}: take its row out" for path in sorted(gone)]


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
    cases = [(("It is for nobody.\n", ""), "", 1), (("`nobody` knows\n", ""), "", 0), (("", "// tells of it\n"), "", 2),
             (("", "// tells of it\n"), "src/a.cpp 1\n", 0), (("", "int so_many; // plain\n"), "", 0),
             (("", "// plain\n"), "src/a.cpp 1\n", 1), (("", "// plain\n"), "src/a.cpp 0\n", 1),
             (("", "fail(\"the own key\");\n"), "src/a.cpp 1\n", 0), (("", "// tells of whom\n"), "src/a.cpp 1\n", 3),
             (("", "// tells of it\n"), "src/a.cpp 2\n", 1), (("", "// tells of it\n"), "src/b.cpp 1\n", 3),
             (("", "// tells of it\n"), "src/a.cpp 1\nsrc/b.cpp 1\n", 1), (("", "// tells of it\n"), "src/b.cpp 1\nsrc/a.cpp 1\n", 2)]
    for (document, source), table, expected in cases:
        got = check([("a.md", document)], [("src/a.cpp", source)], table)
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
    (_, changes), (_, table) = read(root, ["CHANGELOG.md", TABLE])
    complaints = [*self_test(), *check_changes(changes), *check(list(read(root, documents)), list(read(root, sources)), table)]
    print("\n".join(complaints))
    print(f"{len(documents)} documents, {len(sources)} sources, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
