"""Checks that each test which asks less of one engine of sockets is in tests/engines.txt, with its row of SECURITY.md, and
that no test looks at the engine by other means. usage: check_engines.py REPOSITORY"""
import os
import re
import sys

FOLDERS = ("tests", "bindings", "samples", "tools")
SOURCES = (".c", ".h", ".cpp", ".py", ".sh", ".txt", ".lua", ".go", ".rs", ".cs")
DEFINITIONS = ("tests/capi/support/engine.h", "tests/support/sockets.h", "tests/documents/check_engines.py")
# What the variable does, and what an abort of libzmq is.
MAY_LOOK = ("tests/capi/options.c", "tests/shortage/sweep.c")
ASKS_LESS = re.compile(r'engine(?:_keeps|s_that_keep)\((?:[\w()]+,\s*)?"([^"]+)"\)')
# By hand: a comparison of engines, suites of one alone, or of what the environment names.
OTHER_MEANS = re.compile(r'[!=]= *Engine::k|\bValues\(\s*Engine::k|getenv\("DISTAG_SOCKET_ENGINE"\)')


def rows_of(text):
    """The first cells of the table of engines."""
    table = text.split("## What the engines promise")[1].split("\n## ")[0]
    return {line.split(" | ")[0][2:] for line in table.splitlines() if line.startswith("| ")} - {"promise"}


def table_of(text):
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {tuple(line.split(" | ")[:2]) for line in lines}


def sources(root):
    for start in FOLDERS:
        for folder, folders, files in os.walk(os.path.join(root, start)):
            folders[:] = [name for name in folders if name not in ("__pycache__", "corpus", "data")]
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith(SOURCES) and path not in DEFINITIONS + ("tests/engines.txt",):
                    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                        yield path, file.read()


def problems(rows, table, files):
    found = set()
    for path, text in files:
        found.update((path, row) for row in ASKS_LESS.findall(text))
        if path not in MAY_LOOK and OTHER_MEANS.search(text):
            yield f"{path} looks at the engine by hand: use engine_keeps, and a line of tests/engines.txt"
    for path, row in sorted(found - table):
        yield f"{path} asks less of libzmq (\"{row}\"), and tests/engines.txt does not say so"
    for path, row in sorted(table - found):
        yield f"tests/engines.txt: {path} asks nothing of \"{row}\""
    for path, row in sorted(table):
        if row not in rows:
            yield f"tests/engines.txt: \"{row}\" of {path} is no row of SECURITY.md"


def main(root):
    with open(os.path.join(root, "SECURITY.md"), encoding="utf-8") as file:
        rows = rows_of(file.read())
    with open(os.path.join(root, "tests/engines.txt"), encoding="utf-8") as file:
        table = table_of(file.read())
    told = list(problems(rows, table, sources(root)))
    for problem in told:
        print(problem)
    return 1 if told else 0


# Each kind of problem is found.
def self_test():
    rows, table = {"a row"}, {("x.c", "a row")}
    assert not list(problems(rows, table, [("x.c", 'if (engine_keeps("a row"))')]))
    assert len(list(problems(rows, table, []))) == 1
    assert len(list(problems(set(), table, [("x.c", 'engine_keeps(GetParam(), "a row")')]))) == 1
    assert len(list(problems(rows, set(), [("x.c", 'engine_keeps("a row")')]))) == 1
    assert len(list(problems(rows, set(), [("x.c", "if (engine == Engine::kZmq)")]))) == 1
    assert len(list(problems(rows, set(), [("x.cpp", "S, XTest, ::testing::Values(\n    Engine::kZmtp), name);")]))) == 1
    assert not list(problems(rows, table, [("x.c", 'S, XTest, engines_that_keep("a row"), name);')]))


if __name__ == "__main__":
    self_test()
    sys.exit(main(sys.argv[1]))
