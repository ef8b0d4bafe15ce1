"""Prints a source as Doxygen wants it: each comment of a declaration as one of documentation. usage: doxygen_filter.py FILE"""
import re
import sys

# Texts that Doxygen or Markdown would take for a command, a tag or an emphasis.
SPECIAL = str.maketrans({"\\": "\\\\", "@": "\\@", "<": "&lt;", ">": "&gt;", "#": "\\#", "%": "\\%", "*": "\\*"})
# Names that no user writes: they stay out.
INTERNAL = re.compile(r"^namespace (detail|std) \{.*?^\}  // namespace \1$|^template <>\nstruct std::.*?^\};$", re.S | re.M)


def words(text):
    """Text without marks, but for code between backquotes and names, which become links."""
    parts = re.split(r"(\b[a-zA-Z]\w*_\w+\b)", text)
    return "".join(part if index % 2 else part.translate(SPECIAL) for index, part in enumerate(parts))


def block(comment):
    inner = re.sub(r"^[ =]+|[ =]+$", "", comment[2:-2])
    lines = [re.sub(r"^ \* ?", "", line) for line in inner.split("\n")]
    return [words(line) for line in lines]


def filter_c(text):
    """Blocks and runs of //, each before its declaration, or behind it on its line."""
    out, place = [], 0
    for match in re.finditer(r"/\*.*?\*/|(?:(?<=\n)[ \t]*//[^\n]*\n)+|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", text, re.S):
        token = match.group(0)
        out.append(text[place : match.start()])
        place = match.end()
        line_begin = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        behind = "<" if line_begin.strip() else ""
        if token.startswith('"'):
            out.append(token)
        elif token.startswith("/*"):
            is_inside = not re.match(r"\s*(\n|$)", text[match.end() :])  # within a declaration
            out.append(token if is_inside else "/**" + behind + " " + "\n".join(block(token)) + " */")
        elif token.lstrip().startswith("//"):
            lines = [words(line.strip()[2:]) for line in token.strip().split("\n")]
            out.append("/**" + behind + "\n".join(lines).replace("*/", "") + " */" + "\n" * token.endswith("\n"))
    out.append(text[place:])
    return "".join(out)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = INTERNAL.sub(lambda match: "\n" * match.group(0).count("\n"), file.read())
    if sys.argv[1].endswith("distag.h"):  # its conventions, as they are laid out
        end = text.index("*/")
        lines = [re.sub(r"^(/\*| \*) ?", "", line) for line in text[:end].split("\n")]
        sys.stdout.write("/** \\file\n\\verbatim\n" + "\n".join(lines[1:]).rstrip() + "\n\\endverbatim */")
        text = text[end + 2 :]
    sys.stdout.write(filter_c(text))


if __name__ == "__main__":
    main()
