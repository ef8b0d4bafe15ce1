"""Reads distag.h as pages: its sections with their comments and declarations, in the order of the header."""
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "header"))
import header_text  # noqa: E402

# The page of each section, by its number; "" for those that go to the pages of the handles they name.
PAGES = {1: "error", 2: "", 3: "tensor", 4: "op", 5: "custom_op", 6: "value", 7: "worker", 8: "invocation", 9: "call",
         10: "context", 11: "rref", 12: "optimizer", 13: "report", 14: "mesh", 15: "spec",
         16: "collective", 17: "sharded", 18: "checkpoint", 19: "loader",
         20: "plan", 21: "api", 22: None}
SUMMARIES = {
    "error": "status codes and errors", "tensor": "dense n-d arrays with their history", "op": "tensor math",
    "custom_op": "ops and hooks of the host", "value": "content of calls", "worker": "participants of a group",
    "invocation": "functions that a worker offers", "call": "calls, futures and events",
    "context": "contexts and the backward pass", "rref": "values that live on other workers",
    "optimizer": "update rules and their state", "report": "statistics and reports",
    "mesh": "workers in a grid with named axes", "spec": "how a tensor lies on a mesh",
    "collective": "sums and exchanges among the members of a mesh",
    "sharded": "tensors that lie over the members of a mesh",
    "checkpoint": "values saved by the members of a mesh",
    "loader": "batches made ahead of the program, sharded",
    "plan": "specs of many tensors, by rules on their names",
    "api": "the function table for dlopen"}
# Handles that have no section of their own.
HANDLE_PAGES = {"reply": "invocation", "future": "call", "gradients": "context"}
BANNER = re.compile(r"/\* ==== (\d+)\. (.*?) =+(?: since ([\d.]+) ====)?(.*?)\*/", re.S)
TOKEN = re.compile(r"/\*.*?\*/|#define(?:[^\n]*\\\n)*[^\n]*|#[^\n]*|typedef struct (?P<struct>\w+) \{.*?\} (?P=struct);|"
                   r"enum \w+ \{.*?\};|DISTAG_API .*?\);|typedef [^;{]*?\(\*.*?\);|[^;#/]*?;|\s+|.", re.S)


class Entry:
    """What one comment describes: declarations in their order, and those of them that have a name."""

    def __init__(self, comment):
        self.comment = comment
        self.functions = []
        self.callbacks = []
        self.structs = []
        self.enums = []
        self.constants = []

    def names(self):
        return [each.name for each in self.functions + self.callbacks] + self.structs + self.enums + self.constants


class Page:
    def __init__(self, name):
        self.name = name
        self.summary = SUMMARIES[name]
        self.introduction = ""
        self.entries = []


def plain(comment):
    """The text of a comment, its lines joined; "\\n\\n" before each labelled part."""
    lines = [re.sub(r"^(/\*+| \*)? ?|(=+ \*/| ?\*/)$", "", line).rstrip() for line in comment.strip().split("\n")]
    text = " ".join(line.strip() for line in lines if not re.fullmatch(r"[ =*/]*", line))
    text = re.sub(r" (?=(?:Ownership|Threads(?:, Fails)?|Fails): |Blocks[. ,]| ?\d\. [A-Z])", "\n\n", text)
    return re.sub(r" +", " ", text).strip()


class Reader:
    def __init__(self, text):
        self.functions = {each.line: each for each in header_text.functions(text)}
        self.callbacks = {each.name: each for each in header_text.callbacks(text)}
        self.structs = header_text.struct_members(text)
        self.enums = header_text.enums(text)
        self.text = text

    def entries(self, begin, end):
        """Those of a section. A comment begins one, if it is not at the end of a line; what follows belongs to it."""
        current, place, ended_line = Entry(""), begin, False
        for match in TOKEN.finditer(self.text, begin, end):
            token, place = match.group(0), match.start()
            if not token.strip():
                ended_line = ended_line and "\n" not in token
                continue
            if token.startswith("/*"):
                if not ended_line:
                    if current.names() or current.comment:
                        yield current
                    current = Entry(plain(token))
                continue
            self.add(current, token, place)
            ended_line = True
        if current.names():
            yield current

    def add(self, entry, token, place):
        define = re.match(r"#define (DISTAG_[A-Z_]+)\b", token)
        typed = re.match(r"typedef struct (\w+) \{|enum (\w+) \{|typedef [^(]*\(\*(\w+)\)", token.strip())
        if token.strip().startswith("DISTAG_API"):
            line = self.text.count("\n", 0, place + len(token) - len(token.lstrip())) + 1
            entry.functions.append(self.functions[line])
        elif define and not define.group(1).endswith(("_INIT", "_H", "_API")):
            entry.constants.append(define.group(1))
        elif typed and typed.group(1) in self.structs:
            entry.structs.append(typed.group(1))
        elif typed and typed.group(2):
            entry.enums.append(typed.group(2))
        elif typed and typed.group(3) in self.callbacks:
            entry.callbacks.append(self.callbacks[typed.group(3)])


def noun_page(entry, page):
    """The page of a function of the section of handles: that of the noun in its name."""
    if page or not entry.functions:
        return page
    noun = re.match(r"distag_(\w+)_(?:retain|release)", entry.functions[0].name).group(1)
    return HANDLE_PAGES.get(noun, noun)


def split_by_noun(entry):
    """An entry of the section of handles describes several nouns."""
    by_noun = {}
    for function in entry.functions:
        part = by_noun.setdefault(function.name.rsplit("_", 1)[0], Entry(entry.comment))
        part.functions.append(function)
    return list(by_noun.values()) or [entry]


def read_pages(text):
    """The pages by name. What describes the whole header is in read_conventions."""
    pages = {name: Page(name) for name in PAGES.values() if name}
    reader = Reader(text)
    banners = list(BANNER.finditer(text))
    ends = [banner.start() for banner in banners[1:]] + [text.index("#ifdef __cplusplus\n}")]
    for banner, end in zip(banners, ends):
        page = PAGES[int(banner.group(1))]
        if page is None:  # limits: on the page of the conventions
            continue
        if page:
            pages[page].introduction = plain(banner.group(4))
        for entry in reader.entries(banner.end(), end):
            if not entry.names():  # a rule of the section
                rule = re.sub(r"^-+ | -+$", "", entry.comment)
                pages[page].introduction = "\n\n".join(filter(None, [pages[page].introduction, rule]))
                continue
            for part in [entry] if page else split_by_noun(entry):
                target = noun_page(part, page) or "worker"  # a deleter is of no noun; workers explain when they run
                pages[target].entries.append(part)
    return pages


def uncommented(text):
    return "\n".join(re.sub(r"^(/\*| \*)", "", line) for line in text.split("\n"))


def read_conventions(text):
    """Introduction and numbered conventions of the comment at the top, and the limits (what, how much) of the last one."""
    top = uncommented(text[: text.index("#ifndef DISTAG_H")])
    introduction = " ".join(top[: top.index("CONTENTS")].split("SPDX-License-Identifier: MIT")[1].split())
    rules = top[top.index("CONVENTIONS") + len("CONVENTIONS") : top.index("Declarations are there since")]
    conventions = [" ".join(rule.split()) for rule in re.split(r"\n +\d+\. ", rules)[1:]]
    tail = uncommented(text[re.search(r"\d+\. Limits =", text).start() :])
    limits = []
    for line in tail.split("\n")[4:]:
        if not line.strip():
            break
        if line.lstrip().startswith("="):
            break
        what, much = line[3:51].strip(), line[51:].strip()
        if what and limits and not limits[-1][1]:
            limits[-1] = [limits[-1][0] + " " + what, much]
        elif what:
            limits.append([what, much])
        else:
            limits[-1][1] += " " + much
    return introduction, conventions, limits
