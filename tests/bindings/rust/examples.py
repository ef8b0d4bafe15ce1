"""Each item that the crate gives to its users has an example, which `cargo test` runs. usage: examples.py FOLDER_OF_SOURCES"""
import os
import re
import sys

ITEM = re.compile(r"((?:^ *///.*\n|^#\[.*\]\n)*)^pub (?:struct|enum|trait|fn|type) (\w+)", re.M)
NAMES = re.compile(r"^pub use (?:\w+::)*(?:\{([^}]*)\}|(\w+|\*));", re.M)


def main():
    folder = sys.argv[1]
    texts = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".rs"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                texts[name] = file.read()
    items = {}
    for name, text in texts.items():
        if name != "ops.rs":  # one for all: they are alike
            items.update((item, comment) for comment, item in ITEM.findall(text))
    given = {each.strip() for braces, one in NAMES.findall(texts["lib.rs"]) for each in (braces or one).split(",")}
    given |= {item for _, item in ITEM.findall(texts["enums.rs"]) + ITEM.findall(texts["lib.rs"])}
    given -= {"", "*", "distag_sys"}
    missing = sorted(name for name in given if "```" not in items[name])
    print("\n".join(f"{name}: has no example" for name in missing) or f"{len(given)} items, each with an example")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
