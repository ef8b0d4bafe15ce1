"""The committed files below bindings/ are what the generator writes today, and their layouts are the compiler's.
usage: check.py REPOSITORY LIBRARY C_COMPILER WORK_FOLDER"""
import ctypes
import difflib
import importlib.util
import json
import os
import subprocess
import sys


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def check_files(repository, files):
    """Each file is committed as it is generated."""
    for path, text in files.items():
        committed = read(os.path.join(repository, "bindings", path))
        if committed != text:
            difference = difflib.unified_diff(committed.split("\n"), text.split("\n"), "committed", "generated", n=0)
            yield f"bindings/{path} is not what bindings/generate.py writes:\n" + "\n".join(list(difference)[:12])


def questions(api):
    """What the compiler is asked: a name for people, the expression, and the answer of api.json."""
    for struct in api["structs"]:
        yield f"size of {struct['name']}", f"sizeof({struct['name']})", struct["size"]
        for member in struct["members"]:
            yield (f"offset of {struct['name']}.{member['name']}", f"offsetof({struct['name']}, {member['name']})",
                   member["offset"])
    for enum in api["enums"]:
        for value in enum["values"]:
            yield value["name"], value["name"], value["value"]
        if enum["type"]:
            yield f"size of {enum['typedef']}", f"sizeof({enum['typedef']})", int(enum["type"].strip("uint_")) // 8
    for constant in api["constants"]:
        yield constant["name"], constant["name"], constant["value"]


def check_compiler(api, repository, compiler, work):
    """Sizes, offsets and numbers are what a compiler makes of the header."""
    asked = list(questions(api))
    lines = ["#include <distag.h>", "#include <stdio.h>", "int main(void) {"]
    lines += [f'  printf("%lld\\n", (long long)({expression}));' for _, expression, _ in asked]
    lines += ["  return 0;", "}"]
    source, program = os.path.join(work, "layout.c"), os.path.join(work, "layout")
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    subprocess.run([compiler, "-I", os.path.join(repository, "include"), source, "-o", program], check=True)
    answers = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    for (name, _, expected), answer in zip(asked, answers, strict=True):
        if int(answer) != expected:
            yield f"{name}: api.json says {expected}, the compiler {answer}"


def check_ctypes(api, repository):
    """ctypes lays the structs out in the same way."""
    path = os.path.join(repository, "bindings", "python", "distag", "_raw.py")
    spec = importlib.util.spec_from_file_location("raw", path)
    raw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(raw)
    for struct in api["structs"]:
        mirrored = getattr(raw, struct["name"])
        if ctypes.sizeof(mirrored) != struct["size"]:
            yield f"_raw.{struct['name']} has {ctypes.sizeof(mirrored)} bytes, not {struct['size']}"
        for member in struct["members"]:
            if getattr(mirrored, member["name"]).offset != member["offset"]:
                yield f"_raw.{struct['name']}.{member['name']} is at another offset than {member['offset']}"


def check_table(api):
    """Every function but the one that gives the table has its slot."""
    for function in api["functions"]:
        if (function["slot"] is None) != (function["name"] == "distag_get_api"):
            yield f"{function['name']}: has no slot, or needs none"


def main():
    repository, library, compiler, work = sys.argv[1:]
    sys.path.insert(0, os.path.join(repository, "bindings"))
    import generate

    os.makedirs(work, exist_ok=True)
    api = generate.describe(library)
    complaints = list(check_files(repository, generate.files(api)))
    complaints += check_table(api)
    complaints += check_compiler(json.loads(generate.json_text(api)), repository, compiler, work)
    complaints += check_ctypes(api, repository)
    print("\n".join(complaints))
    print(f"{len(api['functions'])} functions, {len(api['structs'])} structs, {len(api['ops'])} ops, "
          f"{len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
