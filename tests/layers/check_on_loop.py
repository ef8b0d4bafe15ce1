"""Checks that methods on the loop say so first. usage: check_on_loop.py REPOSITORY

A public method that a header of src/ puts on the loop, by a sentence "On the loop" about its class or in a comment
above or beside it, and that a .cpp defines, begins with assert_on_loop. Such a comment, or one that says "any thread",
holds to the end of its paragraph. Getters need no assertion (one return without arguments), and a method that only
leads to the one of the same name in its State is judged by that.
"""
import os
import re
import sys

from check_layers import read_tree

# They know no loop: what owns them is on it, and asserts it.
WITHOUT_LOOP = {"EventLog", "HandshakeWatch", "Lack", "MemberNews", "PeerTable", "SentMessages", "StartGate", "Transfers",
                "WaitingMessages"}
ON = re.compile(r"(?:^|[.;] )(?:everything |all )?on the loop\b", re.I)
OFF = re.compile(r"\bany thread\b|\bbefore the start\b|\bloop (?:is|are) gone\b", re.I)
CLASS = re.compile(r"(?:class|struct) (\w+)\b(?!::)[^;]*$")
METHOD = re.compile(r"  (?! )(?!.*\b(?:static|using|friend)\b)[\w:<>,&*\[\]\s]*?[\s&*](\w+)\(")
GETTER = re.compile(r"\s*return [\w*&>.\-:]*(?:\(\)[\w>.\-]*)*;\s*$")
ASSERTION = re.compile(r"\s*(?:\w+->)?assert_on_loop\(")


def verdict(comment, otherwise):
    if OFF.search(comment):
        return False
    return True if ON.search(comment) else otherwise


def methods(header):
    """(class, method) for each public method on the loop that is declared and not defined in the header."""
    found = []
    name, of_class, of_paragraph, is_public, comment, statement = None, False, False, False, "", ""
    for line in header.splitlines():
        if line.startswith(("class ", "struct ")) and CLASS.match(line):
            name, is_public = CLASS.match(line).group(1), line.startswith("struct ")
            of_class = of_paragraph = bool(ON.search(comment)) and name not in WITHOUT_LOOP
        if line.strip().startswith("//"):
            comment = (comment + " " + line.strip().lstrip("/ ")).strip()
            continue
        if not line.strip():
            of_paragraph, comment = of_class, ""
            continue
        if re.match(r" (public|protected|private):", line):
            is_public, of_paragraph = "public" in line, of_class
        elif name and (statement or METHOD.match(line)):
            statement += line
            code, _, trailing = statement.partition("//")
            if not code.rstrip().endswith((";", "{", "}")):
                continue
            of_paragraph = verdict(comment, of_paragraph)
            is_on_loop = verdict(trailing.strip(), of_paragraph) and name not in WITHOUT_LOOP
            is_defined_here = code.rstrip().endswith(("{", "}", "= 0;", "= default;"))
            method = METHOD.match(code).group(1)
            if is_public and is_on_loop and not is_defined_here and method != name:
                found.append((name, method))
            statement = ""
        comment = ""
        if line.startswith("}"):
            name = None
    return found


def bodies(source, name, method):
    for match in re.finditer(rf"(?m)^[^\s/#}}].*?(?<![\w:]){re.escape(name)}::{method}\(", source):
        begin = source.index("{", match.end())
        if ";" in source[match.end() : begin]:
            continue
        depth = 0
        for end in range(begin, len(source)):
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            if depth == 0:
                break
        yield source[begin + 1 : end]


def is_sound(source, name, method, body):
    if ASSERTION.match(body) or GETTER.match(body):
        return True
    leads_on = re.match(rf"\s*(?:return )?state_->{method}\([^;]*\);\s*$", body)
    inner = list(bodies(source, name + "::State", method)) if leads_on else []
    return bool(inner) and all(ASSERTION.match(other) for other in inner)


def check(files):
    """Complaints about `files`, a map from the path below src/ to the text, and how many methods were judged."""
    complaints, count = [], 0
    for path in sorted(files):
        source = files.get(path[:-2] + ".cpp")
        if not path.endswith(".h") or path.startswith("base/") or source is None:
            continue
        wanted = methods(files[path])
        for name, method in sorted(set(wanted)):
            count += 1
            found = list(bodies(source, name, method))
            sound = sum(is_sound(source, name, method, body) for body in found)
            # One that is private may have the same name.
            if sound < min(wanted.count((name, method)), len(found)):
                complaints.append(f"src/{path[:-2]}.cpp: {name}::{method} is on the loop, so it begins with assert_on_loop")
    return complaints, count


def main():
    complaints, count = check(read_tree(os.path.join(sys.argv[1], "src")))
    print("\n".join(complaints))
    print(f"{count} methods on the loop, {len(complaints)} complaints")
    return 1 if complaints or not count else 0


if __name__ == "__main__":
    sys.exit(main())
