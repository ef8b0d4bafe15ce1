"""Classes of src with too many methods or fields. usage: check_classes.py REPOSITORY

A class has at most 30 methods and 16 fields. classes.txt has the exceptions, which only shrink: one class a line, with its
file and the numbers that are above the bounds ("-" for one that is not).

A method is a function, public or private, that the body of the class declares: also one that is static, a template or an
operator, and each overload. Constructors, destructors, deleted functions and friends do not count, nor do calls of
macros. A field is a data member, also a static one unless it is constexpr. Nested types are classes of their own.
"""
import os
import re
import sys

from check_layers import read_tree
from check_rules import blank

MOST_METHODS, MOST_FIELDS = 30, 16
TABLE = "tests/layers/classes.txt"
COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.S)
CLASS = re.compile(r"\b(enum\s+)?(?:class|struct|union)\s+(?:\w+\([^()]*\)\s*)*(?:(\w[\w:]*)\s*)?(?:<[^{};]*>\s*)?(?:final\s*)?"
                   r"(?::(?!:)[^{};()]*)?\{")
TYPE = re.compile(r"(?:enum|class|struct|union)\b")
NOT_COUNTED = re.compile(r"(?:friend|using|typedef|static_assert|enum)\b|$")
LABEL = re.compile(r"\s*(?:public|protected|private)\s*:")
SPECIFIER = re.compile(r"(?:\[\[[^\]]*\]\]|\b(?:explicit|constexpr|inline|virtual|static|mutable|const|noexcept)\b)\s*")
# What thread safety says about a member, and its alignment.
ANNOTATION = re.compile(r"\b(?:[A-Z][A-Z_]+|alignas)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")


def code_of(text):
    """Without comments, texts and lines of the preprocessor."""
    text = COMMENT_OR_TEXT.sub(blank, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def end_of(text, begin):
    """Behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def without_template_lists(text):
    """The text without all that stands between < and >; an operator of that name stays."""
    text = re.sub(r"\boperator\s*[<>=!+\-*/&|\[\]()]{1,3}(?=\s*\()", "operator_", text)
    before = None
    while text != before:
        before, text = text, re.sub(r"\btemplate\s*<[^<>]*>|<[^<>]*>", " ", text)
    return text


def head_of(member):
    """What declares it: without annotations and lists of templates, and without what follows = or {."""
    text = ANNOTATION.sub(" ", without_template_lists(re.sub(r"\bdecltype\([^()]*\)", "decltype", member)))
    return re.sub(r"\s+", " ", text).strip()


def is_function(head):
    name, bracket, rest = re.split(r"[={;]", head, maxsplit=1)[0].partition("(")
    return bool(bracket) and not rest.lstrip().startswith("*") and not TYPE.match(name)


def members_of(body):
    """The text of each member: a function without its body, a nested type as {}."""
    at, member = 0, ""
    while at < len(body):
        label = LABEL.match(body, at) if not member.strip() else None
        if label:
            at = label.end()
            continue
        sign = body[at]
        if sign == ";":
            yield member
            member = ""
        elif sign == "{":
            at = end_of(body, at)
            member += "{}"
            rest = body[at:].lstrip()
            # A member behind the colon of a constructor has a bracket of its own.
            if is_function(head_of(member)) and not rest.startswith((",", "{")):
                yield member
                member = ""
            continue
        elif sign in "([":
            end = end_of(body, at)
            member += body[at:end]
            at = end
            continue
        else:
            member += sign
        at += 1


def count_members(name, body):
    """(methods, fields) of the body of a class."""
    methods = fields = 0
    for member in members_of(body):
        head = head_of(member)
        if NOT_COUNTED.match(head) or (TYPE.match(head) and not re.search(r"\w$", head.partition("{}")[2] or head)):
            continue
        if is_function(head):
            called = SPECIFIER.sub("", head.partition("(")[0]).strip()
            is_method = "operator" in called or (" " in called and "~" not in called and called != name)
            methods += is_method and not re.search(r"= ?delete$", head)
        elif TYPE.match(head) and "{}" not in head and len(head.split()) == 2:
            continue  # a type that is declared here and defined elsewhere
        elif not re.search(r"\bconstexpr\b", head):
            names = re.sub(r"\([^()]*\)|\{\}|\[[^\]]*\]", "", head)
            fields += 1 + len(re.findall(r",", names))
    return methods, fields


def classes_of(text):
    """(name, methods, fields) for each class, a nested one with the names around it."""
    code = code_of(text)
    around = []  # (end, name)
    for match in CLASS.finditer(code):
        if match.group(1):
            continue
        begin, end = match.end(), end_of(code, match.end() - 1)
        around = [outer for outer in around if outer[0] > begin]
        name = "::".join([outer[1] for outer in around] + [match.group(2) or "(unnamed)"])
        around.append((end, match.group(2) or "(unnamed)"))
        yield (name, *count_members((match.group(2) or "").split("::")[-1], code[begin : end - 1]))


def parse(table):
    rows = {}
    for line in table.splitlines():
        if line and not line.startswith("#"):
            path, name, methods, fields = line.split()
            rows[path, name] = tuple(0 if number == "-" else int(number) for number in (methods, fields))
    return rows


def complaints_of_class(place, counts, row):
    for what, count, most, allowed in zip(("methods", "fields"), counts, (MOST_METHODS, MOST_FIELDS), row):
        if count > max(most, allowed):
            yield f"{place}: {count} {what}, at most {max(most, allowed)} are allowed: take something out of it"
        elif count < allowed:
            rest = count if count > most else "-"
            yield f"{place}: {count} {what} are left: lower its row of {TABLE} from {allowed} to {rest}"


def check(files, table):
    """Complaints about `files`, a map from path to text."""
    rows = parse(table)
    complaints, seen = [], set()
    if list(rows) != sorted(rows):
        complaints.append(f"{TABLE}: its rows are not sorted")
    for path, text in sorted(files.items()):
        for name, *counts in classes_of(text):
            seen.add((path, name))
            complaints += complaints_of_class(f"{path}: {name}", counts, rows.get((path, name), (0, 0)))
    complaints += [f"{TABLE}: {path} has no class {name}: take its row out" for path, name in rows if (path, name) not in seen]
    complaints += [f"{TABLE}: {path}: {name} is within the bounds: take its row out"
                   for (path, name), row in rows.items() if row == (0, 0)]
    return complaints


# Two methods and three fields.
CLEAN = """class GUARD("a") Calls final : public Base<int> {
 public:
  using Done = std::function<void(int)>;
  struct Options {
    int size = 0;
  };
  enum class Kind { kOne, kTwo };
  explicit Calls(Loop& loop) : loop_(loop), size_{3} {}
  ~Calls() override { end(); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  friend void look(Calls& calls);
  MACRO(Calls);
  static constexpr int kMost = get(3);

  template <typename T>
  [[nodiscard]] std::map<int, T> start(int call = {}, Done done = nullptr) REQUIRES(mutex_) {
    struct Local { int a; };
    return run();
  }
  explicit operator bool() const { return true; }

 private:
  struct State;
  std::map<int, std::function<void(int)>> calls_ GUARDED_BY(mutex_);
  void (*end_)(int) = nullptr;
  int size_{3};
};
"""
# A text of the class, the one in its place, and the numbers of methods and fields then.
PLANTED = [("", "", (2, 3)), ("int size_{3};", "int size_{3}, more_ = 4;", (2, 4)), ("struct State;", "bool is_over() const;", (3, 3)),
           ("struct State;", "struct { int a; } both_;", (2, 4)), ("MACRO(Calls);", "bool operator==(const Calls&) const;", (3, 3)),
           ("MACRO(Calls);", "static Calls* make();", (3, 3)), ("static constexpr int", "static const int", (2, 4)),
           ("struct State;", "std::array<Slot, 2> slots_ = {};", (2, 4)), ("friend void look", "void look", (3, 3)),
           ("struct State;", "virtual void end() = 0;", (3, 3)), ("struct State;", 'Text way_ = "env://"; // a; b', (2, 4)),
           ("struct State;", "decltype(&::end) end_;", (2, 4)), ("struct State;", "char sign_ = '{';", (2, 4))]


def self_test():
    for old, new, expected in PLANTED:
        found = {name: tuple(counts) for name, *counts in classes_of(CLEAN.replace(old, new, 1) if old else CLEAN)}
        if found.get("Calls") != expected or found.get("Calls::Options") != (0, 1):
            yield f"self test: {new!r}: expected {expected}, got {found}"
    big = "class A {\n" + "  void f();\n" * 31 + "  int a;\n" * 17 + "};\n"
    for text, table, expected in ((big, "", 2), (big, "a.h A 31 17\n", 0), (big, "a.h A 30 17\n", 1), (big, "a.h A 32 18\n", 2),
                                  ("class A {};\n", "a.h A 31 -\n", 1), ("class A {};\n", "", 0), (big, "a.h A 31 17\na.h B 31 -\n", 1),
                                  (big, "b.h A 31 -\na.h A 31 17\n", 2), ("class A {};\n", "a.h A - -\n", 1)):
        got = check({"a.h": text}, table)
        if len(got) != expected:
            yield f"self test: {table!r}: expected {expected} complaints, got {got}"


def main():
    root = sys.argv[1]
    files = {f"src/{path}": text for path, text in read_tree(os.path.join(root, "src")).items() if path.endswith((".h", ".cpp"))}
    with open(os.path.join(root, TABLE), encoding="utf-8") as file:
        complaints = [*self_test(), *check(files, file.read())]
    print("\n".join(complaints))
    print(f"{sum(len(list(classes_of(text))) for text in files.values())} classes, {len(complaints)} complaints")
    return 1 if complaints or not files else 0


if __name__ == "__main__":
    sys.exit(main())
