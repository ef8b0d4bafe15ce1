"""Plants functions into a copy of distag.h: those that no convention explains are refused, those that follow the
conventions are understood. usage: self_test.py REPOSITORY"""
import difflib
import json
import os
import re
import sys

# A declaration, and a part of the complaint that must come.
UNFIT = [
    ("distag_status distag_tensor_fold(distag_tensor *tensor, const int64_t *folds, distag_error *err);",
     "an array without its length"),
    ("distag_status distag_tensor_fill(distag_tensor *tensor, int64_t *items, size_t count, distag_error *err);",
     "has its capacity behind it"),
    ("distag_status distag_worker_watch(distag_worker *worker, distag_future_callback callback, distag_error *err);",
     "a callback without user_data"),
    ("distag_status distag_worker_watch(distag_worker *worker, distag_future_callback callback, void *user_data, "
     "distag_error *err);", "a callback without destroy"),
    ("distag_status distag_tensor_split(distag_tensor *tensor, float **out_rows, distag_error *err);",
     "what is written"),
    ("distag_status distag_tensor_link(distag_tensor *tensor, struct stranger *other, distag_error *err);",
     "no convention explains the type"),
    ("const double *distag_tensor_get_norms(distag_tensor *tensor);", "no convention says how long"),
]

# A declaration, and what must be found of some of its parameters.
FIT = [
    ("distag_status distag_value_copy_float64s(distag_value *value, double *items /* nullable with capacity 0 */, "
     "size_t capacity, size_t *out_count, distag_error *err);",
     {"items": {"role": "buffer", "length": "capacity", "nullable": True}, "capacity": {"role": "length"},
      "out_count": {"role": "out"}}),
    ("distag_status distag_tensor_create_snapshot(distag_tensor *tensor, distag_tensor **out_snapshot, "
     "distag_error *err);", {"out_snapshot": {"role": "out", "owned": True}}),
    ("distag_status distag_gradients_get_first(distag_gradients *gradients, distag_tensor **out_tensor, "
     "distag_error *err);", {"out_tensor": {"role": "out", "owned": False}}),
    ("struct DLThing; distag_status distag_tensor_import(struct DLThing *managed /* take */, "
     "distag_tensor **out_tensor, distag_error *err);", {"managed": {"role": "take"}}),
    ("struct DLThing; distag_status distag_tensor_export(distag_tensor *tensor, uint32_t flags, "
     "struct DLThing **out_managed, distag_error *err);", {"out_managed": {"role": "out", "owned": True}}),
    ("distag_status distag_tensor_get_spec(distag_tensor *tensor, distag_member *out_spec, distag_error *err);",
     {"out_spec": {"role": "fill"}}),
]


def planted(text, declaration):
    """The header with one more function, which has a comment."""
    declaration = declaration.replace("distag_status distag_", "DISTAG_API distag_status distag_", 1)
    if not declaration.startswith("DISTAG_API") and "DISTAG_API" not in declaration:
        declaration = "DISTAG_API " + declaration
    declaration = declaration.replace("; DISTAG_API", ";\nDISTAG_API")
    place = text.index("/* ====", text.index("13. Looking inside"))
    return text[:place] + "/* Planted. */\n" + declaration + "\n\n" + text[place:]


def check_unfit(description, text):
    for declaration, expected in UNFIT:
        try:
            description.describe(planted(text, declaration))
        except description.Unfit as unfit:
            if expected not in str(unfit):
                yield f"{declaration}: {expected!r} was expected, not {str(unfit)!r}"
        else:
            yield f"not refused: {declaration}"


def check_fit(description, text):
    for declaration, expected in FIT:
        described = description.describe(planted(text, declaration))
        name = declaration[declaration.index("distag_", declaration.index("distag_status ") + 8):].split("(")[0]
        function = next(each for each in described["functions"] if each["name"] == name)
        parameters = {parameter["name"]: parameter for parameter in function["parameters"]}
        for parameter, wanted in expected.items():
            found = {key: parameters[parameter].get(key) for key in wanted}
            if found != wanted:
                yield f"{name}: {parameter}: {wanted} was expected, not {found}"


def check_comments(description, text):
    """Comments of members and enumerators are one line, without the stars that begin those of the header."""
    api = description.describe(text)
    for struct in api["structs"]:
        yield from (f"{struct['name']}.{each['name']}: a star in {each['comment']!r}"
                    for each in struct["members"] if " * " in each["comment"])
    for enum in api["enums"]:
        yield from (f"{each['name']}: a star in {each['comment']!r}" for each in enum["values"] if " * " in each["comment"])


# A change of the header, and what must show in what is generated for each language; a language that reads the header
# itself, as C++ does, has none of it.
CHANGES = [
    (lambda text: text.replace("uint64_t calls_made, calls_served,", "uint64_t calls_served, calls_made,"),
     {"python/distag": "calls_served", "rust": "calls_served", "lua": "calls_served", "go": "CallsServed", "csharp": "calls_served"}),
    (lambda text: text.replace("DISTAG_E_DEADLINE = 50", "DISTAG_E_DEADLINE = 59"),
     {"python/distag": "E_DEADLINE = 59", "rust": "59", "lua": "DISTAG_E_DEADLINE = 59", "go": "ErrDeadline        Code = 59",
      "csharp": "Deadline = 59"}),
    (lambda text: re.sub(r"DISTAG_API distag_status distag_relu\(.*?\);\n", "", text, flags=re.S),
     {"python/distag": "distag_relu", "rust": "distag_relu", "lua": "distag_relu", "go": "distag_relu", "cpp/distag": "distag_relu",
      "csharp": "distag_relu"}),
    (lambda text: planted(text, "size_t distag_tensor_get_rows(distag_tensor *tensor);"),
     {"python/distag": "distag_tensor_get_rows", "rust": "Planted.", "lua": "distag_tensor_get_rows", "go": "func (x *Tensor) Rows() int {",
      "csharp": "public long Rows {"}),
]


def changed_lines(repository, folder, files):
    """The lines that are not those of the committed files, and those that are gone from them."""
    for name, text in files.items():
        with open(os.path.join(repository, "bindings", folder, name), encoding="utf-8") as file:
            committed = file.read()
        yield from (line for line in difflib.ndiff(committed.split("\n"), text.split("\n"))
                    if line[0] in "+-") if committed != text else ()


def check_languages(repository, text):
    """A change of the header shows in each language, by the name of what has changed."""
    import description
    import generate
    import operations

    with open(os.path.join(repository, "bindings", "api.json"), encoding="utf-8") as file:
        ops = json.load(file)["ops"]
    for change, expected in CHANGES:
        api = description.describe(change(text))
        functions = {function["name"]: function for function in api["functions"]}
        api["ops"] = [dict(op, function=operations.function_of(op, functions)) for op in ops]
        for folder, part in expected.items():
            found = list(changed_lines(repository, folder, generate.EMITTERS[folder].files(api)))
            if not any(part in line for line in found):
                yield f"{folder}: {part!r} was expected among {len(found)} changed lines: {found[:4]}"


def main():
    repository = sys.argv[1]
    sys.path.insert(0, os.path.join(repository, "bindings"))
    import description

    with open(os.path.join(repository, "include", "distag.h"), encoding="utf-8") as file:
        text = file.read()
    complaints = list(check_unfit(description, text)) + list(check_fit(description, text))
    complaints += check_comments(description, text)
    complaints += check_languages(repository, text)
    print("\n".join(complaints))
    print(f"{len(UNFIT)} planted faults, {len(FIT)} planted functions, {len(CHANGES)} changes in each language, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
