#!/usr/bin/env python3
"""Puts the crates into a folder as cargo's source replacement wants them, with checksums.
usage: rust_registry.py REPOSITORY FOLDER CRATE...    FOLDER is /usr/share/cargo/registry of a package"""
import hashlib
import json
import os
import re
import shutil
import sys

SKIPPED = ("target", "Cargo.lock", ".gitignore")


def install(source, crate, folder):
    with open(os.path.join(source, crate, "Cargo.toml"), encoding="utf-8") as file:
        manifest = file.read()
    version = re.search(r'^version = "(.+)"$', manifest, re.M).group(1)
    target = os.path.join(folder, f"{crate}-{version}")
    shutil.copytree(os.path.join(source, crate), target, ignore=shutil.ignore_patterns(*SKIPPED))
    # Beside each other the crates are found by name and version, and the README is one of both.
    manifest = re.sub(r', path = "\.\./[\w-]+"', "", manifest).replace('readme = "../README.md"', 'readme = "README.md"')
    with open(os.path.join(target, "Cargo.toml"), "w", encoding="utf-8") as file:
        file.write(manifest)
    if 'readme = "README.md"' in manifest:
        shutil.copy(os.path.join(source, "README.md"), target)
    sums = {}
    for path, _, names in sorted(os.walk(target)):
        for name in sorted(names):
            full = os.path.join(path, name)
            os.chmod(full, 0o644)
            with open(full, "rb") as file:
                sums[os.path.relpath(full, target)] = hashlib.sha256(file.read()).hexdigest()
    with open(os.path.join(target, ".cargo-checksum.json"), "w", encoding="utf-8") as file:
        json.dump({"package": None, "files": sums}, file, sort_keys=True)


def main():
    repository, folder, *crates = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for crate in crates:
        install(os.path.join(repository, "bindings", "rust"), crate, folder)


if __name__ == "__main__":
    main()
