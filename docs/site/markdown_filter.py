"""Prints a document as Doxygen wants it: links and names as they are, code blocks with the names it knows.
usage: markdown_filter.py FILE"""
import os
import re
import sys

LANGUAGES = {"sh": "{.sh}", "python": "{.py}", "cpp": "{.cpp}", "c": "{.c}", "": "{.unparsed}"}
# Others than this are shown as they are.
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.S | re.M)


def as_doxygen(fence):
    language, body = fence.groups()
    return f"~~~~~~{LANGUAGES.get(language, '{.unparsed}')}\n{body}~~~~~~"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
    text = FENCE.sub(as_doxygen, text)
    # A heading bears an anchor of its document; that of the first names the page: docs_errors.html.
    name = re.sub(r"\W", "_", os.path.relpath(sys.argv[1]).lower().removesuffix(".md"))
    number = 0
    lines = []
    is_code = False
    for line in text.split("\n"):
        is_code ^= line.startswith("~~~~~~")
        if re.match(r"#+ ", line) and not is_code:
            line = f"{line} {{#{name}{f'_{number}' if number else ''}}}"
            number += 1
        lines.append(line)
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()
