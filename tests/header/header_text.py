"""Reads distag.h: its functions with their parameters, its structs, and the slots of the function table."""
import re
from collections import namedtuple

Function = namedtuple("Function", "name result parameters line")
Parameter = namedtuple("Parameter", "type name note")
Member = namedtuple("Member", "type name count note")
Enumerator = namedtuple("Enumerator", "name value note")
Callback = namedtuple("Callback", "name result parameters line")

TABLE = re.compile(r"typedef struct distag_api \{.*?\} distag_api;", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def without_comments(text):
    return COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def split_parameters(text):
    """Each parameter with the comment that stands behind it ("nullable", "take"), on either side of its comma."""
    parts, depth, current = [], 0, ""
    for token in re.findall(r"/\*.*?\*/|.", text, re.S):
        if token.startswith("/*"):
            current += token
            continue
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += token
    parts.append(current)
    result = []
    for part in parts:
        note = " ".join(comment.strip("/* ") for comment in COMMENT.findall(part))
        declaration = " ".join(COMMENT.sub(" ", part).split())
        if declaration in ("void", ""):
            continue
        match = re.match(r"(.*?)(\w+)$", declaration)
        result.append(Parameter(match.group(1).strip(), match.group(2), note))
    return result


def functions(text):
    found = []
    for match in re.finditer(r"^DISTAG_API ([^;{]*?)\b(distag_\w+)\s*\((.*?)\);", text, re.S | re.M):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Function(match.group(2), match.group(1).strip(), split_parameters(match.group(3)), line))
    return found


def comment_of(text, function):
    """The comment above a function, which may stand above others of its group as well."""
    above = text.split("\n")[: function.line - 1]
    end = max((i for i, line in enumerate(above) if line.rstrip().endswith("*/") and line.startswith((" *", "/*"))),
              default=-1)
    begin = max((i for i in range(end + 1) if above[i].startswith("/*")), default=0)
    return " ".join(line.strip(" /*") for line in above[begin : end + 1])


def handles(text):
    """The handle types by name, each with what its declaration says of it."""
    return dict(re.findall(r"^typedef struct distag_(\w+) distag_\1;\s*/\*(.*?)\*/", text, re.M))


def handle_of(text, type_):
    """The handle type that `distag_tensor **` or `distag_tensor *` points to, or None."""
    match = re.match(r"distag_(\w+) \*+$", type_)
    return match.group(1) if match and match.group(1) in handles(text) else None


# Writes a handle, is named get, and gives: the function names no handle type, so convention 2 does not make it lend.
GIVES_BY_EXCEPTION = {"distag_get_gradients"}


def lends(text, function):
    """Whether a function gives a handle that the caller need not release: convention 2."""
    if handle_of(text, function.result):
        return True
    return bool(re.match(rf"distag_({'|'.join(handles(text))})_get_", function.name)) and any(
        parameter.name.startswith("out_") and handle_of(text, parameter.type) for parameter in function.parameters)


def structs(text):
    """Name and members (type, name) of each struct with a body, the function table aside."""
    found = {}
    plain = without_comments(TABLE.sub("", text))
    for match in re.finditer(r"typedef struct (distag_\w+) \{(.*?)\} \1;", plain, re.S):
        members = [" ".join(member.split()) for member in match.group(2).split(";") if member.strip()]
        found[match.group(1)] = members
    return found


def struct_members(text):
    """The members of each struct with a body, each with the comment behind it; one with a function type has no name of
    a type, but its declaration: `void *(*)(void *user_data, size_t size)`."""
    found = {}
    for match in re.finditer(r"typedef struct (distag_\w+) \{(.*?)\} \1;", TABLE.sub("", text), re.S):
        pieces = re.findall(r"([^;]*?);[ \t]*((?:/\*.*?\*/)?)", match.group(2), re.S)
        found[match.group(1)] = [member for declaration, comment in pieces for member in members_of(declaration, comment)]
    return found


def plain(comment):
    """The text of a comment, in one line, without the stars before its lines."""
    return " ".join(re.sub(r"\n\s*\*(?!/)", "\n", comment).strip("/* ").split())


def members_of(declaration, comment):
    """The members that one declaration makes: `uint64_t made, served;` makes two."""
    declaration = " ".join(without_comments(declaration).split())
    note = plain(comment)
    pointer = re.match(r"(.*?\(\*)(\w+)(\)\s*\(.*\))$", declaration)
    if pointer:
        return [Member(pointer.group(1) + pointer.group(3), pointer.group(2), 1, note)]
    type_, names = re.match(r"(.*?)(\w+(?:\[\d+\])?(?:, \w+)*)$", declaration).groups()
    counted = [re.match(r"(\w+)(?:\[(\d+)\])?$", name).groups() for name in names.split(", ")]
    return [Member(type_.strip(), name, int(count or 1), note) for name, count in counted]


def enums(text):
    """The enumerators of each enum, each with the comment behind it."""
    found = {}
    for name, body in re.findall(r"^enum (distag_\w+) \{(.*?)\};", text, re.M | re.S):
        pieces = re.findall(r"(\w+) = (-?\d+),?[ \t]*((?:/\*.*?\*/)?)", body, re.S)
        found[name] = [Enumerator(each, int(value), plain(comment))
                       for each, value, comment in pieces]
    return found


def enum_types(text):
    """The typedef of each enum that has one: it stands right before the enum."""
    return {enum: name for name, enum in re.findall(r"^typedef \w+ (distag_\w+);\nenum (distag_\w+) \{", text, re.M)}


def typedefs(text):
    """The scalar types that have a name of their own: {"distag_status": "int32_t"}."""
    return {name: base for base, name in re.findall(r"^typedef (\w+) (distag_\w+);", text, re.M)}


def callbacks(text):
    """The function types, those of the ops in the table aside."""
    found = []
    for match in re.finditer(r"^typedef ([^;{}()]*?)\(\*(distag_\w+)\)\((.*?)\);", text, re.M | re.S):
        if not match.group(2).endswith("_op"):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Callback(match.group(2), match.group(1).strip(), split_parameters(match.group(3)), line))
    return found


def constants(text):
    """The numbers that are defined, as numbers."""
    number = r"(?:INT64_C\()?\(?(?:\(int64_t\))?(-?\d+)(?:LL)?\)*"
    return {name: int(value) for name, value in
            re.findall(rf"^#define (DISTAG_\w+) {number}[ \t]*(?:/\*.*)?$", text, re.M)}


def slot_versions(text):
    """The version since which each function has its slot, by the comments of the table."""
    found, since = {}, ""
    for piece in re.findall(r"/\*.*?\*/|[^;/]+;", TABLE.search(text).group(0), re.S):
        version = re.match(r"/\* (\d+\.\d+)\b", piece)
        since = version.group(1) if version else since
        pointer = re.match(r".*?\(\*(\w+)\)\(", piece, re.S)
        names = [pointer.group(1)] if pointer else re.findall(r"(op_\w+)\s*[,;]", piece)
        found.update((slot_function(name), since) for name in names)
    return found


def slot_function(slot):
    return "distag_" + (slot[3:] if slot.startswith("op_") else slot)


def slots(text):
    """Functions that have a slot, in the order of the table."""
    table = without_comments(TABLE.search(text).group(0))
    names = []
    for member in table[table.index("{") + 1 : table.rindex("}")].split(";"):
        member = " ".join(member.split())
        if not member or member.startswith("uint32_t"):
            continue
        pointer = re.match(r".*?\(\*(\w+)\)\(", member)
        if pointer:
            names.append(pointer.group(1))
        else:
            names.extend(name.strip() for name in member.split(" ", 1)[1].split(","))
    return [slot_function(name) for name in names]
