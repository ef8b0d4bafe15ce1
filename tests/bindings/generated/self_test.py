"""Plants functions into a copy of distag.h: those that no convention explains are refused, those that follow the
conventions are understood, and one more getter is there in each language. Plants faults into what is generated: two
fields that change places, another number, a function less: each is told by name. usage: self_test.py REPOSITORY"""
import json
import os
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

# A file of each language; two members that follow each other, a number, and a function, as they stand there.
FAULTS = {
    "python/distag/_raw.py": (('("code", c_int32)', '("origin_rank", c_int32)'), ("E_DEADLINE = 50", "E_DEADLINE = 51"),
                              '"distag_tensor_get_ndim"'),
    "cpp/distag/enums.hpp": (None, ("deadline = 50", "deadline = 51"), None),
    "cpp/distag/ops.hpp": (None, None, "inline tensor relu("),
    "rust/distag-sys/src/raw.rs": (("pub code: i32", "pub origin_rank: i32"),
                                   ("DISTAG_E_DEADLINE: distag_status = 50", "DISTAG_E_DEADLINE: distag_status = 51"),
                                   "pub fn distag_tensor_get_ndim"),
    "rust/distag-sys/src/layout.rs": (("distag_error, code", "distag_error, origin_rank"), None, None),
    "rust/distag/src/enums.rs": (None, ("Self::Deadline => 50", "Self::Deadline => 51"), None),
    "lua/distag/cdef.lua": (("distag_status code", "int32_t origin_rank"), ("DISTAG_E_DEADLINE = 50", "DISTAG_E_DEADLINE = 51"),
                            "distag_tensor_get_ndim"),
    "lua/distag/constants.lua": (None, ("M.E_DEADLINE = 50", "M.E_DEADLINE = 51"), None),
    "rust/distag/src/ops.rs": (None, None, "pub fn relu("),
}
GETTER = "uint64_t distag_tensor_get_generation(distag_tensor *tensor);"
# What has to be there of it, with its document where the language has one.
GIVEN = {"python/distag/_raw.py": "distag_tensor_get_generation",
         "rust/distag-sys/src/raw.rs": "pub fn distag_tensor_get_generation(tensor: *mut distag_tensor) -> u64;",
         "lua/distag/cdef.lua": "uint64_t distag_tensor_get_generation(distag_tensor *tensor);",
         "rust/distag/src/getters.rs": "    /// Planted.\n    #[must_use]\n    pub fn generation(&self) -> u64 {"}


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


def faults(text, swapped, number, function):
    """The text with each fault in turn, and what the complaint has to name."""
    if swapped:
        one, other = swapped
        yield text.replace(one, "\0").replace(other, one, 1).replace("\0", other), swapped
    if number:
        yield text.replace(*number), number[:1]
    if function:
        yield "\n".join(line for line in text.split("\n") if function not in line), (function,)


def check_faults(repository, files):
    import check

    for path, planted_faults in FAULTS.items():
        for text, names in faults(files[path], *planted_faults):
            complaint = "\n".join(check.check_files(repository, {path: text}))
            if path not in complaint or not any(name in complaint for name in names):
                yield f"{path}: a fault at {names} is not told: {complaint!r}"


def check_getter(description, generate, text, ops):
    api = description.describe(planted(text, GETTER))
    api["ops"] = ops
    files = generate.files(api)
    for path, wanted in GIVEN.items():
        if wanted not in files[path]:
            yield f"{path}: one more getter of the header does not give {wanted!r}"


def main():
    repository = sys.argv[1]
    sys.path.insert(0, os.path.join(repository, "bindings"))
    import description
    import generate

    with open(os.path.join(repository, "include", "distag.h"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(repository, "bindings", "api.json"), encoding="utf-8") as file:
        api = json.load(file)
    complaints = list(check_unfit(description, text)) + list(check_fit(description, text))
    complaints += check_faults(repository, generate.files(api))
    complaints += check_getter(description, generate, text, api["ops"])
    print("\n".join(complaints))
    print(f"{len(UNFIT)} planted faults, {len(FIT)} planted functions, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
