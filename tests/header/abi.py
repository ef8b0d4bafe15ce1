"""The binary interface that distag.h declares, as lines of text: constants, enumerators, struct members and slots with
their offsets, types of callbacks and functions. Offsets are those of machines with pointers of 64 bits."""
import re

import header_text

POINTER_SIZE = 8
SIZES = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "double": 8, "size_t": 8, "char": 1}


def squeeze(declaration):
    """One spelling of a type or declaration: no names of parameters, blanks only between words."""
    text = " ".join(declaration.split())
    text = re.sub(r"\s*([*(),\[\]])\s*", r"\1", text)
    return re.sub(r"(?<=[\w])(?=\*)", " ", text)


def without_names(parameters):
    """The types of a list of parameters."""
    types = [parameter.type for parameter in header_text.split_parameters(parameters)]
    return squeeze(", ".join(types) if types else "void")


def members(body, sizes):
    """Offset, type and name of what a struct has, laid out by its natural alignment."""
    offset = 0
    for member in body.split(";"):
        member = " ".join(member.split())
        if not member:
            continue
        pointer = re.match(r"(.*?)\(\*(\w+)\)\s*\((.*)\)$", member)
        if pointer:
            # Slots have no names of parameters, members of structs do.
            type_ = squeeze(f"{pointer.group(1)}(*)({pointer.group(3)})")
            declared = [(type_, pointer.group(2), POINTER_SIZE, 1)]
        else:
            first, *others = member.split(",")
            base, name, count = re.match(r"(.*?)(\w+)(?:\[(\d+)\])?$", first.strip()).groups()
            size = POINTER_SIZE if "*" in base else sizes.get(base.split()[-1], POINTER_SIZE)
            type_ = squeeze(base) + (f"[{count}]" if count else "")
            declared = [(type_, each, size, int(count or 1)) for each in [name] + [other.strip() for other in others]]
        for type_, name, size, count in declared:
            offset = -(-offset // size) * size
            yield offset, type_, name
            offset += size * count


def nameless(line):
    """A member that is a pointer to a function, without the names of its parameters: they are no part of its type."""
    pointer = re.match(r"(member .*\(\*\))\((.*)\)$", line)
    return f"{pointer.group(1)}({without_names(pointer.group(2))})" if pointer else line


def spelled_out(found):
    """Members whose types have names, with these types themselves: a name may be given to a type later on."""
    named = dict(re.findall(r"^type (\w+) (\w+)$", "\n".join(found), re.M))
    for name, result, parameters in re.findall(r"^callback (\w+) (.*?)\((.*)\)$", "\n".join(found), re.M):
        named[name] = f"{result}(*)({parameters})"
    for line in found:
        words = line.split(" ", 4)
        if words[0] == "member" and words[-1] in named:
            yield " ".join(words[:-1] + [named[words[-1]]])


def lines(text):
    plain = re.sub(r"^\s*#.*?(?<!\\)$", "", header_text.without_comments(text), flags=re.M | re.S)
    found = []
    sizes = dict(SIZES)
    for name, value in re.findall(r"^#define (DISTAG_\w+) (-?\d+)LL$", text, re.M):
        found.append(f"constant {name} INT64_C({value})")
    for base, name in re.findall(r"^typedef (\w+) (distag_\w+);", plain, re.M):
        sizes[name] = SIZES[base]
        found.append(f"type {name} {base}")
    for result, name, parameters in re.findall(r"^typedef ([^;{]*?)\(\*(distag_\w+)\)\((.*?)\);", plain, re.M | re.S):
        found.append(f"callback {name} {squeeze(result)}({without_names(parameters)})")
    for name, body in re.findall(r"enum (distag_\w+) \{(.*?)\};", plain, re.S):
        for enumerator in filter(None, (" ".join(part.split()) for part in body.split(","))):
            found.append(f"enum {name} {enumerator}")
    for name, body in re.findall(r"typedef struct (distag_\w+) \{(.*?)\} \1;", plain, re.S):
        kind = "slot" if name == "distag_api" else f"member {name}"
        for offset, type_, member in members(body, sizes):
            found.append(f"{kind} {offset} {member} {type_}")
    for function in header_text.functions(text):
        types = squeeze(", ".join(parameter.type for parameter in function.parameters) or "void")
        found.append(f"function {function.name} {squeeze(function.result)}({types})")
    return found
