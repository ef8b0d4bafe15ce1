"""The library's binary interface is what abi/libdistag.abi says, or has grown at its ends.
usage: gate.py LIBRARY INCLUDE_FOLDER [--renew]

LIBRARY has types in its debug information, as that of the dev preset has. libabigail compares functions with their nodes
and types, structs with their members, and the function table. Enumerators and macros are in no type that a function
takes, so it does not see them: the header is held to the lists of closed versions, tests/header/slots-X.Y.txt, as well.
--renew writes abi/libdistag.abi: after the open version has changed what no closed version has."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BASE = os.path.join(ROOT, "abi", "libdistag.abi")
LISTS = sorted(glob.glob(os.path.join(ROOT, "tests", "header", "slots-*.txt")))
sys.path.insert(0, os.path.join(ROOT, "tests", "header"))
import check_frozen  # noqa: E402

# No types but the header's, and nothing of the place or the libraries of one build.
DESCRIBE = ("abidw", "--drop-private-types", "--exported-interfaces-only", "--no-show-locs", "--no-corpus-path",
            "--no-comp-dir-path", "--no-elf-needed", "--no-parameter-names", "--type-id-style", "hash")
COMPARE = ("abidiff", "--no-added-syms", "--harmless")  # what it calls harmless are names of members, say


def run(*command):
    if not shutil.which(command[0]):
        sys.exit(f"{command[0]} is missing: install abigail-tools (scripts/setup.sh tests)")
    return subprocess.run(command, capture_output=True, text=True, check=False)


def describe(library, include):
    """The interface of a library as libabigail writes it."""
    done = run(*DESCRIBE, "--headers-dir", include, library)
    if done.returncode != 0 or "<class-decl name='distag_api' size" not in done.stdout:
        sys.exit(f"{library} has no types to compare: build it with -g, as the dev preset does. {done.stderr}")
    return re.sub(r" path='[^']*/src/", " path='src/", done.stdout)


def without_growth(now):
    """A description without the members behind the ends that structs have in abi/libdistag.abi. (The suppression that
    abidiff has for them, has_data_member_inserted_at = end, also lets members pass that have moved.)"""
    structs = {each.get("name"): each for each in ElementTree.parse(BASE).iter("class-decl") if each.get("size-in-bits")}
    tree = ElementTree.fromstring(now)
    for struct in tree.iter("class-decl"):
        before = structs.get(struct.get("name"))
        if before is None or int(struct.get("size-in-bits", 0)) < int(before.get("size-in-bits")):
            continue
        end = int(before.get("size-in-bits"))
        struct.set("size-in-bits", str(end))
        for member in struct.findall("data-member"):
            if int(member.get("layout-offset-in-bits")) >= end:
                struct.remove(member)
    return ElementTree.tostring(tree, encoding="unicode")


def of_library(library, include):
    """What is gone, moved or changed since abi/libdistag.abi."""
    with tempfile.NamedTemporaryFile("w", suffix=".abi") as now:
        now.write(without_growth(describe(library, include)))
        now.flush()
        done = run(*COMPARE, BASE, now.name)
    return [done.stdout + done.stderr] if done.returncode != 0 else []


def of_header(include):
    """What is gone, moved or changed since the closed versions."""
    header = check_frozen.read(os.path.join(include, "distag.h"))
    return [each for path in LISTS for each in check_frozen.check(header, check_frozen.read(path).splitlines())]


def main():
    library, include, *renew = sys.argv[1:]
    if renew:
        with open(BASE, "w", encoding="utf-8") as file:
            file.write(describe(library, include))
        return 0
    found = of_library(library, include) + of_header(include)
    print("\n".join(found) or "the interface is that of abi/libdistag.abi, or has grown at its ends")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
