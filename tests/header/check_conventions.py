"""Checks distag.h against the conventions it states. usage: check_conventions.py distag.h [lent.c]"""
import re
import sys

import header_text

MAX_LINES = 2300
CONTENTS_COLUMN = 38  # where the purpose of a section begins
MAX_COMMENT_WORDS = 150  # except the top and the table of limits
MAX_COLUMNS = 120
COMMENT_SHARE = (0.5, 0.7)
# Functions that do not wait whose waiting twin has another name.
TWINS = {"distag_context_settle_async": "distag_get_gradients"}
HANDLES = "tensor|value|worker|invocation|reply|future|context|gradients|rref|optimizer|mesh|loader"


def check_layout(text):
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        yield f"{len(lines)} lines, more than {MAX_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield f"line {number}: {len(line)} columns, more than {MAX_COLUMNS}"
        if line != line.rstrip() or "\t" in line:
            yield f"line {number}: a tab, or blanks at its end"
    includes = re.findall(r"^\s*#\s*include\s*(\S+)", text, re.M)
    if includes != ["<stddef.h>", "<stdint.h>"]:
        yield f"includes {includes}, only <stddef.h> and <stdint.h> are allowed"


def comment_share(text):
    """Share of the lines that are not blank and carry a comment, the function table aside."""
    total = commented = 0
    inside = False
    for line in header_text.TABLE.sub("", text).split("\n"):
        if not line.strip():
            continue
        total += 1
        commented += inside or "/*" in line
        for mark in re.findall(r"/\*|\*/", line):
            inside = mark == "/*"
    return commented / total


def check_comments(text, functions):
    share = comment_share(text)
    if not COMMENT_SHARE[0] <= share <= COMMENT_SHARE[1]:
        yield f"comment share {share:.0%}, not within {COMMENT_SHARE[0]:.0%} to {COMMENT_SHARE[1]:.0%}"
    lines = text.split("\n")
    for function in functions:
        above = function.line - 2
        while above >= 0 and lines[above].strip() and not lines[above].rstrip().endswith("*/"):
            above -= 1
        if not lines[above].strip():
            yield f"{function.name}: no comment above it or its group"
    if "//" in header_text.TABLE.sub("", text).replace("://", ""):
        yield "a // comment"


def check_table(text, functions):
    declared = {function.name for function in functions}
    slots = header_text.slots(text)
    for name in sorted(declared - set(slots) - {"distag_get_api"}):
        yield f"{name}: declared, but has no slot in the function table"
    for name in sorted(set(slots) - declared):
        yield f"{name}: has a slot in the function table, but is not declared"
    for name in sorted({name for name in slots if slots.count(name) > 1}):
        yield f"{name}: two slots in the function table"


def check_function(function):
    parameters = function.parameters
    names = [parameter.name for parameter in parameters]
    fallible = function.result == "distag_status" and function.name != "distag_error_set"
    if fallible and names[-1:] != ["err"]:
        yield "returns a status, so its last parameter must be `distag_error *err`"
    if not fallible and "err" in names and function.name != "distag_error_set":
        yield "takes an err, so it must return distag_status"
    before_error = names[:-1] if names[-1:] == ["err"] else names
    outs = [name.startswith("out_") for name in before_error]
    if outs != sorted(outs) and "capacity" not in names and "output_count" not in names:
        yield "out_ parameters must come last, before err"
    for parameter in parameters:
        if re.search(rf"\bconst distag_({HANDLES})\b", parameter.type):
            yield f"{parameter.name}: handles are never const"
        if parameter.type.replace(" ", "") in ("void*", "constvoid*") and parameter.name not in (
                "data", "buffer", "user_data", "memory", "object"):
            yield f"{parameter.name}: a void pointer that is neither data nor user_data"
        if re.search(r"\b(int|long|short|unsigned|bool|_Bool|float)\b", parameter.type):
            yield f"{parameter.name}: `{parameter.type}` is no type of fixed width"
        if parameter.name == "destroy" and not {"user_data", "object"} & set(names):
            yield "a destroy without user_data or object"
        if parameter.type.endswith("**") and "const" not in parameter.type and not parameter.name.startswith("out_"):
            yield f"{parameter.name}: what is written must be named out_"
        if (parameter.type.startswith("const distag_") and parameter.type.endswith("_options *")
                and "nullable" not in parameter.note):
            yield f"{parameter.name}: options are always nullable"
    if function.name.endswith("_release") and "nullable" not in parameters[0].note:
        yield "release takes NULL, and says so"


def check_functions(functions):
    for function in functions:
        if not re.match(r"distag_[a-z0-9]+(_[a-z0-9]+)*$", function.name):
            yield f"{function.name}: a name is lower case, with words apart"
        for complaint in check_function(function):
            yield f"{function.name} (line {function.line}): {complaint}"
    names = {function.name for function in functions}
    for name in sorted(names):
        if name.endswith("_retain") and name.replace("_retain", "_release") not in names:
            yield f"{name}: no release beside it"
        if name.endswith("_async") and TWINS.get(name, name[: -len("_async")]) not in names:
            yield f"{name}: no waiting twin beside it"


def convention(text, number):
    """The text of a numbered convention at the top of the header."""
    conventions = text[text.index(" * CONVENTIONS") :]
    return re.search(rf"^ \* +{number}\. (.*?)^ \* +{number + 1}\. ", conventions, re.S | re.M).group(1)


def check_contents(text):
    """The contents at the top name each section, and comments are short enough to be read."""
    top = text[: text.index(" * CONVENTIONS")]
    listed = [line[3:CONTENTS_COLUMN].strip() for line in top.split("\n") if re.match(r" \* +\d+\. ", line)]
    sections = re.findall(r"^/\* ==== (\d+\. .*?) =+ since", text, re.M)
    if listed != sections:
        yield f"the contents are not the sections: {sorted(set(listed) ^ set(sections)) or 'their order'}"
    for match in list(re.finditer(r"/\*.*?\*/", text, re.S))[1:]:
        words = len(match.group(0).replace("*", " ").split())
        if words > MAX_COMMENT_WORDS and ". Limits " not in match.group(0):
            yield f"line {text.count(chr(10), 0, match.start()) + 1}: a comment of {words} words, more than {MAX_COMMENT_WORDS}"


def check_ownership(text, functions):
    """Who owns a handle is told by names (conventions 1 and 2); comments must not say otherwise."""
    kinds = header_text.handles(text)
    names = {function.name for function in functions}
    for kind, note in kinds.items():
        is_lent = note.rstrip().endswith("lent")
        for verb in ("retain", "release"):
            if is_lent == (f"distag_{kind}_{verb}" in names):
                yield f"distag_{kind}: a handle has {verb}, unless it is only lent to a callback"
    for function in functions:
        where = f"{function.name} (line {function.line})"
        comment = header_text.comment_of(text, function)
        returned = header_text.handle_of(text, function.result)
        written = [parameter for parameter in function.parameters
                   if parameter.name.startswith("out_") and header_text.handle_of(text, parameter.type)]
        if returned and not re.search(r"_(get|find|as)(_|$)", function.name):
            yield f"{where}: what is returned is lent, so it is named get, find or as"
        if header_text.lends(text, function):
            lender = function.parameters[0] if function.parameters else None
            if lender is None or not header_text.handle_of(text, lender.type):
                yield f"{where}: lends, so its first argument is the handle that lends"
            if re.search(r"\bnew reference\b|\bthe caller's\b|\bto be released\b", comment):
                yield f"{where}: lends by its name, but gives by its comment"
        elif written and re.search(r"\blent\b|\blends\b", comment):
            yield f"{where}: gives by its name, but lends by its comment"
        if written and "_get_" in function.name and not header_text.lends(text, function):
            if function.name not in header_text.GIVES_BY_EXCEPTION:
                yield f"{where}: is named get, so it lends: name the handle type before get, or another verb"
            elif not re.search(r"\bthe caller's\b", comment) or function.name not in convention(text, 2):
                yield f"{where}: gives although it is named get: its comment and convention 2 must say so"
        for parameter in function.parameters:
            if "take" in parameter.note.split() and parameter.name.startswith("out_"):
                yield f"{where}: {parameter.name}: what is written cannot be taken"


def check_walk(text, walk):
    """The test of lent handles has every function that lends."""
    for function in header_text.functions(text):
        if header_text.lends(text, function) and not re.search(rf"\b{function.name}\(", walk):
            yield f"{function.name} lends, but the test of lent handles does not call it"


def check_structs(text):
    for name, members in header_text.structs(text).items():
        if members[0] != "uint32_t struct_size":
            yield f"{name}: struct_size must come first"
        macro = name.upper() + "_INIT"
        if f"#define {macro}" not in text:
            yield f"{name}: {macro} is missing"
        for member in members:
            if ":" in member or re.search(r"\b(union|bool|_Bool|int|long|unsigned)\b", member):
                yield f"{name}: `{member}`: no bitfields, unions, bools or types without a fixed width"
            if re.match(r"distag_(\w+_options|error) \w+$", member):
                yield f"{name}: `{member}`: structs are not nested by value"


def check_enums(text):
    for name, body in re.findall(r"enum (distag_\w+) \{(.*?)\};", header_text.without_comments(text), re.S):
        for enumerator in filter(None, (part.strip() for part in body.split(","))):
            if "=" not in enumerator:
                yield f"{name}: {enumerator} has no explicit value"


def check(text):
    functions = header_text.functions(text)
    complaints = list(check_layout(text))
    complaints += check_comments(text, functions)
    complaints += check_table(text, functions)
    complaints += check_functions(functions)
    complaints += check_ownership(text, functions)
    complaints += check_structs(text)
    complaints += check_enums(text)
    complaints += check_contents(text)
    return complaints


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    complaints = check(text)
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as file:
            complaints += check_walk(text, file.read())
    for complaint in complaints:
        print(f"{sys.argv[1]}: {complaint}")
    print(f"{len(header_text.functions(text))} functions, comment share {comment_share(text):.0%}, "
          f"{len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
