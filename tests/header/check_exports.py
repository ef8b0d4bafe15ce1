"""The library exports exactly the functions of the header, each in the version node of the first release that has it.
usage: check_exports.py nm libdistag.so distag.h slots-X.Y.txt ...      the lists of the closed versions
The version script is written when a version is closed: check_exports.py --map distag.h slots-X.Y.txt ... > distag.map"""
import re
import subprocess
import sys

import header_text


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def node_of_list(path):
    return "DISTAG_" + re.search(r"slots-([\d.]+)\.txt$", path).group(1)


def by_version(lists):
    return sorted(lists, key=lambda path: [int(number) for number in node_of_list(path)[len("DISTAG_"):].split(".")])


def open_node(header):
    return "DISTAG_" + ".".join(re.findall(r"^#define DISTAG_VERSION_(?:MAJOR|MINOR) (\d+)", header, re.M))


def nodes(header, lists):
    """Node of each function: that of the first closed version that has it, or of the open one."""
    found = {}
    for path in by_version(lists):
        for name in re.findall(r"^function (\w+) ", read(path), re.M):
            found.setdefault(name, node_of_list(path))
    for function in header_text.functions(header):
        found.setdefault(function.name, open_node(header))
    return found


def version_script(header, lists):
    """Closed versions name their functions; the last node, of the version that is open, takes all that are new."""
    of_function = nodes(header, lists)
    text, before = "", ""
    for node in map(node_of_list, by_version(lists)):
        if node == open_node(header):  # closed a moment ago: it is the last one until the next is open
            break
        names = "".join(f"    {name};\n" for name in sorted(of_function) if of_function[name] == node)
        text += f"{node} {{\n  global:\n{names}}}{before};\n\n"
        before = f" {node}"
    return text + f"{open_node(header)} {{\n  global: distag_*;\n  local: *;\n}}{before};\n"


def exports(tool, library):
    """Name and node of each exported function. The nodes themselves are symbols too."""
    output = subprocess.run([tool, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split()[1:] for line in output.splitlines() if line.strip()]
    return {name.partition("@")[0]: name.rpartition("@")[2] for kind, name in symbols if kind != "A"}


def main():
    if sys.argv[1] == "--map":
        print(version_script(read(sys.argv[2]), sys.argv[3:]), end="")
        return 0
    tool, library, header, *lists = sys.argv[1:]
    exported = exports(tool, library)
    declared = nodes(read(header), lists)
    complaints = [f"exported, but not declared in the header: {name}" for name in sorted(exported.keys() - declared)]
    complaints += [f"declared in the header, but not exported: {name}" for name in sorted(declared.keys() - exported)]
    complaints += [f"{name} is exported in {exported[name]}, not in {declared[name]}: mend cmake/distag.map"
                   for name in sorted(exported.keys() & declared) if exported[name] != declared[name]]
    print("\n".join(complaints + [f"{len(exported)} exported, {len(declared)} declared"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
