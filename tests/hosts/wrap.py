"""Writes a C function around each function of distag that an object file calls: it says first that it is called, by
note_call(NAME, BLOCKS), shows its arguments to before_NAME where that is one of HOOKED, and ends with note_return().
usage: wrap.py API OBJECT OUT_SOURCE OUT_LINKER_OPTIONS HOOKED..."""
import json
import subprocess
import sys


def wrap(function, hooked):
    name, result = function["name"], function["returns"]["type"]
    parameters = [(each["type"], each["name"]) for each in function["parameters"]]
    declared = ", ".join(f"{kind} {each}" for kind, each in parameters) or "void"
    given = ", ".join(each for _, each in parameters)
    hook = [f"void before_{name}({declared});"] if name in hooked else []
    return hook + [
        f"{result} __real_{name}({declared});",
        f"{result} __wrap_{name}({declared});",
        f"{result} __wrap_{name}({declared}) {{",
        f"  note_call(\"{name}\", {int(function['blocks'])});",
        *([f"  before_{name}({given});"] if hook else []),
        f"  {'' if result == 'void' else f'{result} result = '}__real_{name}({given});",
        "  note_return();",
        *(["  return result;"] if result != "void" else []),
        "}",
    ]


def main():
    api, called, source, options, *hooked = sys.argv[1:]
    symbols = subprocess.run(["nm", "-u", called], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    with open(api, encoding="utf-8") as file:
        functions = [each for each in json.load(file)["functions"] if each["name"] in symbols]
    missing = set(hooked) - {each["name"] for each in functions}
    assert functions and not missing, f"{called} does not call {sorted(missing)}"
    lines = ["#include <distag.h>", "void note_call(const char *name, int blocks);", "void note_return(void);"]
    for each in functions:
        lines += wrap(each, hooked)
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    with open(options, "w", encoding="utf-8") as file:
        file.write("".join(f"-Wl,--wrap={each['name']}\n" for each in functions))


if __name__ == "__main__":
    main()
