"""Checks that each closed version is frozen: its list of the ABI and its schemas exist and are as they were when it was
closed. usage: check_released.py REPOSITORY
RELEASING.md says when the files and the line of each in released.sha256 are written."""
import hashlib
import os
import re
import shutil
import sys
import tempfile

SUMS = "tests/header/released.sha256"


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def closed_versions(changelog):
    """X.Y of each heading `## X.Y.Z` that is not marked as unreleased."""
    return {match.group(1) for match in re.finditer(r"^## (\d+\.\d+)\.\d+(?! \(unreleased\))", changelog, re.M)}


def frozen_files(root):
    for name in sorted(os.listdir(os.path.join(root, "tests/header"))):
        match = re.fullmatch(r"slots-(.*)\.txt", name)
        if match:
            yield match.group(1), f"tests/header/{name}"
    for version in sorted(os.listdir(os.path.join(root, "schemas/released"))):
        for name in sorted(os.listdir(os.path.join(root, "schemas/released", version))):
            yield version, f"schemas/released/{version}/{name}"


def check(root):
    files = list(frozen_files(root))
    closed = closed_versions(read(root, "CHANGELOG.md"))
    for version in sorted(closed):
        for folder in ("tests/header/", "schemas/released/"):
            if not any(each == version and path.startswith(folder) for each, path in files):
                yield f"{version} is closed, but nothing of it is frozen in {folder}"
    for version in sorted({version for version, _ in files} - closed):
        yield f"{version} is frozen, but CHANGELOG.md has no such closed version"
    sums = dict(reversed(line.split("  ", 1)) for line in read(root, SUMS).splitlines())
    for _, path in files:
        with open(os.path.join(root, path), "rb") as file:
            if sums.pop(path, None) != hashlib.sha256(file.read()).hexdigest():
                yield f"{path} is not what was frozen"
    for path in sums:
        yield f"{path} was frozen and is gone"


def self_test(root):
    """Plants one violation after the other into a copy; each must be found."""
    def append(path, text):
        return lambda copy: open(os.path.join(copy, path), "a", encoding="utf-8").write(text)

    violations = [
        (append("tests/header/slots-0.2.txt", "enum x Y = 1\n"), "slots-0.2.txt is not what was frozen"),
        (append("schemas/released/0.2/values.fbs", "\n"), "values.fbs is not what was frozen"),
        (lambda copy: os.remove(os.path.join(copy, "schemas/released/0.1/values.fbs")), "values.fbs was frozen"),
        (lambda copy: os.remove(os.path.join(copy, "tests/header/slots-0.1.txt")), "nothing of it is frozen in tests/"),
        (append("CHANGELOG.md", "\n## 9.9.0 (2099-01-01)\n"), "9.9 is closed, but nothing of it is frozen in schemas/"),
        (append("tests/header/slots-9.8.txt", "\n"), "9.8 is frozen, but CHANGELOG.md has no"),
    ]
    for number, (plant, expected) in enumerate(violations, 1):
        with tempfile.TemporaryDirectory() as copy:
            shutil.copy(os.path.join(root, "CHANGELOG.md"), copy)
            shutil.copytree(os.path.join(root, "tests/header"), os.path.join(copy, "tests/header"))
            shutil.copytree(os.path.join(root, "schemas/released"), os.path.join(copy, "schemas/released"))
            plant(copy)
            complaints = list(check(copy))
            if not any(expected in complaint for complaint in complaints):
                yield f"planted violation {number} was not found: expected {expected!r}, got {complaints}"


def main():
    complaints = list(check(sys.argv[1])) + list(self_test(sys.argv[1]))
    for complaint in complaints:
        print(complaint)
    print(f"{len(list(frozen_files(sys.argv[1])))} frozen files, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
