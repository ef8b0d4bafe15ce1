#!/usr/bin/env python3
"""Writes all that is generated for bindings: bindings/api.json, and the raw layer of each language.

    bindings/generate.py LIBRARY [FOLDER]

LIBRARY is a built libdistag.so, which tells the ops; all else is read in include/distag.h. FOLDER (this one unless
given) gets the files."""
import json
import os
import sys

sys.dont_write_bytecode = True

import description  # noqa: E402
import emit_cpp  # noqa: E402
import emit_csharp  # noqa: E402
import emit_go  # noqa: E402
import emit_lua  # noqa: E402
import emit_python  # noqa: E402
import emit_rust  # noqa: E402
import operations  # noqa: E402

# The emitter of each language, and the folder below bindings of what it writes.
EMITTERS = {"python/distag": emit_python, "cpp/distag": emit_cpp, "rust": emit_rust, "go": emit_go, "lua": emit_lua,
            "csharp": emit_csharp}
HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, "..", "include", "distag.h")


def describe(library, header=HEADER):
    with open(header, encoding="utf-8") as file:
        api = description.describe(file.read())
    api["ops"] = operations.describe(library, api)
    return api


def entries(values, indent):
    """A list in JSON with an entry per line, so that a change shows as a line."""
    lines = ",\n".join(indent + json.dumps(value, ensure_ascii=False) for value in values)
    return f"[\n{lines}\n{indent[:-1]}]" if values else "[]"


def json_text(api):
    parts = [f' "{key}": ' + (entries(value, "  ") if key == "slots" or value and isinstance(value, list) and isinstance(value[0], dict)
                              else json.dumps(value)) for key, value in api.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def files(api):
    """Path and text of each generated file."""
    found = {"api.json": json_text(api)}
    for folder, emitter in EMITTERS.items():
        found.update((f"{folder}/{name}", text) for name, text in emitter.files(api).items())
    return found


def main():
    folder = sys.argv[2] if len(sys.argv) > 2 else HERE
    for path, text in files(describe(sys.argv[1])).items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except description.Unfit as unfit:
        sys.exit(f"bindings/generate.py: {unfit}")
