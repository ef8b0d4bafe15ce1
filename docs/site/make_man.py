"""Writes the man pages distag.7 and distag_<noun>.3 from the comments of distag.h, the same each time.
usage: make_man.py HEADER DATE FOLDER"""
import os
import re
import sys
import textwrap

from header_pages import header_text, read_conventions, read_pages

WIDTH = 78


def escape(text):
    text = text.replace("\\", "\\e").replace("--", "\\-\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def sentences(text):
    """Text as lines: a sentence begins one, and none is too long."""
    lines = []
    for sentence in re.split(r"(?<=[.?!])(?<!e\.g\.)\s+(?=\S)|(?<=[.?!]\))\s+(?=[A-Z])", " ".join(text.split())):
        lines += [escape(line) for line in textwrap.wrap(sentence, WIDTH, break_on_hyphens=False, break_long_words=False)]
    return lines


def paragraphs(text):
    lines = []
    for part in text.split("\n\n"):
        lines += [".Pp"] * bool(lines) + sentences(part)
    return lines


def argument(text):
    """As one argument of a macro."""
    return '"' + escape(text).replace('"', '""') + '"'


def prototype(function, name):
    if not function.parameters:
        return [f".Ft {argument(function.result)}", f".Fn {argument(name)} void"]
    lines = [f".Ft {argument(function.result)}", f".Fo {argument(name)}"]
    for each in function.parameters:
        gap = "" if each.type.endswith("*") else " "
        note = f" /* {each.note} */" if each.note else ""
        lines.append(f".Fa {argument(each.type + gap + each.name + note)}")
    return lines + [".Fc"]


def synopsis(page):
    lines = [".Sh SYNOPSIS", ".In distag.h"]
    for entry in page.entries:
        for callback in entry.callbacks:
            lines += prototype(callback._replace(result="typedef " + callback.result), f"(*{callback.name})")
        for function in entry.functions:
            lines += prototype(function, function.name)
    return lines


def members(items):
    """Members of a struct, or enumerators: what each is, and its comment."""
    lines = [".Bl -tag -width Ds -compact"]
    for macro, what, note in items:
        lines += [f".It {macro} {argument(what)}", *sentences(note)]
    return lines + [".El"]


def describe(entry, reader):
    lines = [".Bl -tag -width Ds"]
    for name in entry.names():
        macro = "Fn" if name in {each.name for each in entry.functions} else "Vt"
        lines.append(f".It {macro} {name}")
    lines += paragraphs(entry.comment) if entry.comment else []
    for name in entry.structs:
        items = [("Fa", " ".join(filter(None, (each.type, each.name + (f"[{each.count}]" if each.count > 1 else "")))),
                  each.note) for each in reader["structs"][name]]
        lines += members(items) if name != "distag_api" else []
    for name in entry.enums:
        lines += members([("Dv", f"{each.name} = {each.value}", each.note) for each in reader["enums"][name]])
    return lines + [".El"]


def head(date, title, section, names, summary):
    lines = [f".Dd {date}", f".Dt {title.upper()} {section}", ".Os", ".Sh NAME"]
    lines += [f".Nm {name} ," for name in names[:-1]] + [f".Nm {names[-1]}", f".Nd {escape(summary)}"]
    return lines


def see_also(names, others):
    refs = [f"{name} 3" for name in sorted(names)] + others
    refs.sort(key=lambda ref: (ref.split()[1], ref.split()[0]))
    return [".Sh SEE ALSO"] + [f".Xr {ref} ," for ref in refs[:-1]] + [f".Xr {refs[-1]}"]


def noun_page(page, date, reader, names):
    title = "distag_" + page.name
    own = [function.name for entry in page.entries for function in entry.functions]
    lines = head(date, title, 3, [title] + [name for name in own if name != title], page.summary) + synopsis(page)
    lines += [".Sh DESCRIPTION", *paragraphs(page.introduction or SHARED)]
    for entry in page.entries:
        lines += describe(entry, reader)
    return lines + see_also(names - {title}, ["distag 7"])


SHARED = "The conventions of distag(7) hold."
ENVIRONMENT = (
    ("DISTAG_RANK , Ev RANK", "The rank of a worker whose options leave it open."),
    ("DISTAG_WORLD_SIZE , Ev WORLD_SIZE", "The number of ranks; -1 for an open world."),
    ("DISTAG_RENDEZVOUS", "Where workers meet that have no address, or \"env://\": any other address."),
    ("DISTAG_MASTER_ADDR , Ev MASTER_ADDR", "Without DISTAG_RENDEZVOUS the host at which rank 0 serves."),
    ("DISTAG_MASTER_PORT , Ev MASTER_PORT", "And its port."),
    ("DISTAG_LANE", "With 0 workers of one machine share no memory: all messages go through sockets."),
    ("DISTAG_SOCKET_ENGINE", "What carries tcp:// and ipc:// where the option socket_engine is 0: zmq (libzmq, default) or zmtp."),
    ("DISTAG_VALIDATE", "With 1 misuse of handles is always told."),
    ("DISTAG_GROUP_KEY_FILE", "A file for this user alone, with the group key of workers whose options have none."),
    ("XDG_STATE_HOME", "Where the key of this user lies, for tcp on one machine; else in ~/.local/state."),
    ("XDG_RUNTIME_DIR , Ev TMPDIR", "Where the private folder of a worker is made; else in /tmp."),
    ("OPENBLAS_NUM_THREADS", "The threads of OpenBLAS, which multiplies matrices; 1 for several workers on a machine."))


def overview(text, date, names):
    introduction, conventions, limits = read_conventions(text)
    lines = head(date, "distag", 7, ["distag"], "distributed autograd as a C library")
    lines += [".Sh SYNOPSIS", ".In distag.h", ".Pp", ".Dl cc program.c $(pkg-config \\-\\-cflags \\-\\-libs distag)"]
    lines += [".Sh DESCRIPTION", *paragraphs(introduction), ".Ss Conventions", ".Bl -enum"]
    for rule in conventions:
        lines += [".It", *sentences(rule)]
    lines += [".El", ".Ss Limits", "Beyond them a call fails and says so; nothing is lost.", ".Bl -tag -width Ds"]
    for what, much in limits:
        lines += [f".It {argument(what)}", *sentences(much)]
    lines += [".El", ".Sh ENVIRONMENT", "The own name of a variable goes before the other one.", ".Bl -tag -width Ds"]
    for name, what in ENVIRONMENT:
        lines += [f".It Ev {name}", *sentences(what)]
    return lines + [".El", *see_also(names, ["distag 1"])]


def main():
    header, date, folder = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        text = file.read()
    reader = {"structs": header_text.struct_members(text), "enums": header_text.enums(text)}
    pages = read_pages(text)
    names = {"distag_" + name for name in pages}
    os.makedirs(folder, exist_ok=True)
    written = {f"distag_{page.name}.3": noun_page(page, date, reader, names) for page in pages.values()}
    written["distag.7"] = overview(text, date, names)
    for page in pages.values():
        for name in (function.name for entry in page.entries for function in entry.functions):
            if name != f"distag_{page.name}":  # man distag_backward shows the page that has it
                written[f"{name}.3"] = [f".so man3/distag_{page.name}.3"]
    for name, lines in written.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
