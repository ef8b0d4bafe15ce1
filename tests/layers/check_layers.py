"""Checks every #include under src/ against src/layers.txt. usage: check_layers.py REPOSITORY"""
import fnmatch
import os
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


class Layers:
    """What src/layers.txt says: numbers of folders, denied folders, and fences (patterns, rooms)."""

    def __init__(self, text):
        self.number = {}
        self.denied = {}
        self.fences = []
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "deny":
                self.denied.setdefault(words[1], set()).update(words[2:])
            elif words[0] == "fence":
                colon = words.index(":")
                self.fences.append((words[1:colon], words[colon + 1 :]))
            else:
                for folder in words[1:]:
                    self.number[folder] = int(words[0])

    def sees(self, folder, other):
        if folder == other:
            return True
        return self.number[other] < self.number[folder] and other not in self.denied.get(folder, set())


def in_room(path, room):
    return fnmatch.fnmatchcase(path, room) if "*" in room else path.startswith(room + "/")


def fenced(include, pattern):
    """A pattern is a header, a folder of headers ("xtensor/"), or the end of a header's name ("_generated.h")."""
    if pattern.endswith("/"):
        return include.startswith(pattern)
    return include == pattern or (pattern.startswith("_") and include.endswith(pattern))


def check_include(layers, files, path, quote, include):
    folder = path.split("/")[0]
    for patterns, rooms in layers.fences:
        if any(fenced(include, pattern) for pattern in patterns) and not any(in_room(path, room) for room in rooms):
            yield f"<{include}> is kept to {', '.join(rooms)}"
            return
    if quote == "<" or include.endswith("_generated.h") or include == "distag.h":
        return
    other = include.split("/")[0]
    if other not in layers.number or include not in files:
        yield f'"{include}" is no file of src/; includes are written relative to src/'
    elif not layers.sees(folder, other):
        yield f'"{include}": {folder} (layer {layers.number[folder]}) may not see {other} (layer {layers.number[other]})'


def check(files):
    """Complaints about `files`, a map from the path below src/ to the text."""
    if "layers.txt" not in files:
        return ["layers.txt is missing"]
    layers = Layers(files["layers.txt"])
    complaints = []
    for path in sorted(files):
        if not path.endswith((".h", ".cpp")):
            continue
        text = files[path]
        if path.split("/")[0] not in layers.number:
            complaints.append(f"src/{path}: its folder has no layer in src/layers.txt")
            continue
        includes = list(INCLUDE.finditer(text))
        for match in includes:
            line = text.count("\n", 0, match.start()) + 1
            for complaint in check_include(layers, files, path, match.group(1), match.group(2)):
                complaints.append(f"src/{path}:{line}: {complaint}")
        header = path[: -len(".cpp")] + ".h"
        if path.endswith(".cpp") and header in files and (not includes or includes[0].group(2) != header):
            complaints.append(f'src/{path}: its first include must be "{header}"')
    return complaints


def read_tree(root):
    files = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                files[os.path.relpath(path, root)] = file.read()
    return files


def main():
    files = read_tree(os.path.join(sys.argv[1], "src"))
    complaints = check(files)
    print("\n".join(complaints))
    sources = sum(path.endswith((".h", ".cpp")) for path in files)
    print(f"{sources} files, {len(complaints)} complaints")
    return 1 if complaints or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
