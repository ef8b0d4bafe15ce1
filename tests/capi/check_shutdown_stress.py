"""Looks whether the stress of shutdowns leaves out a function of the header: HEADER SOURCE..."""
import re
import sys


def main():
    header, *sources = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    declared = set(re.findall(r"DISTAG_API\b[^;(]*?\b(distag_[a-z0-9_]+)\(", text))
    called = set()
    for source in sources:
        with open(source, encoding="utf-8") as file:
            called.update(re.findall(r"\bdistag_[a-z0-9_]+\b", file.read()))
    missing = sorted(declared - called)
    if len(declared) < 150 or missing:
        sys.exit(f"of {len(declared)} functions these are not called: {' '.join(missing)}")


main()
