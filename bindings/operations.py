"""The built-in ops as a library describes them, for bindings/api.json: their signatures, and the C function of each."""
import ctypes
import re

from description import Unfit

CTYPES = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
          "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t}

# Attributes that a binding passes on only if the caller gives them, because ops on sharded tensors treat a value that is
# given differently from a default of the same value. For each, the text that follows its default in documents.
LEFT_OUT = {"ignore_index": "except for a sharded batch: there no target is ignored, and -100 is refused"}


def left_out_text(op):
    """Sentences on those attributes of an op, to follow its summary."""
    return "".join(f" {each['name']}: {each['default']} unless given, {LEFT_OUT[each['name']]}."
                   for each in op["attributes"] if each["name"] in LEFT_OUT)


# Parameters of C functions that have another name in the op's signature.
RENAMED = {("distag_add_scalar", "s"): "value", ("distag_mul_scalar", "s"): "value"}


def structure(api, name):
    """A ctypes structure of a struct that api.json describes."""
    members = next(struct["members"] for struct in api["structs"] if struct["name"] == name)
    fields = []
    for member in members:
        pointer = ctypes.c_char_p if member["type"] == "const char *" else ctypes.c_void_p
        fields.append((member["name"], CTYPES.get(member["type"], pointer)))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def read(path, api):
    """All ops of a library in its order, each with its signature and, where the library has one, its summary."""
    library = ctypes.CDLL(path)
    library.distag_get_op_count.restype = ctypes.c_size_t
    library.distag_get_op.argtypes = (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    library.distag_get_version.restype = ctypes.c_char_p
    version = library.distag_get_version().decode()
    if version != api["version"]:
        raise Unfit(f"{path} is version {version}, the header is version {api['version']}")
    info_type = structure(api, "distag_op_info")
    for index in range(library.distag_get_op_count()):
        info = info_type(struct_size=ctypes.sizeof(info_type))
        if library.distag_get_op(index, ctypes.byref(info), None):
            raise Unfit(f"{path} does not describe op {index}")
        summary = getattr(info, "summary", None)
        yield info.signature.decode(), summary.decode() if summary else None


def parse_argument(text):
    match = re.match(r"(tensor|tensor\?|tensor\.\.\.|int64|float64|bool|text|int64\[\]|dtype) (\w+)(?: = (.+))?$", text)
    if not match:
        raise Unfit(f"an argument that the grammar of signatures does not have: {text}")
    type_, name, default = match.groups()
    if type_.startswith("tensor"):
        return {"name": name, "kind": {"tensor": "one", "tensor?": "optional", "tensor...": "many"}[type_]}
    return {"name": name, "type": type_} if default is None else {"name": name, "type": type_, "default": default}


def parse(signature):
    """An op from its signature: "linear(tensor x, tensor weight, tensor? bias) -> tensor"."""
    match = re.match(r"(\w+)\((.*)\) -> (tensor(?:, tensor)*|tensor\.\.\.)$", signature)
    if not match:
        raise Unfit(f"a signature that the grammar does not have: {signature}")
    name, arguments, outputs = match.groups()
    parsed = [parse_argument(argument) for argument in re.split(r", (?![^\[]*\])", arguments) if argument]
    return {
        "name": name,
        "signature": signature,
        "inputs": [argument for argument in parsed if "kind" in argument],
        "attributes": [argument for argument in parsed if "type" in argument],
        "outputs": "many" if outputs.endswith("...") else outputs.count("tensor"),
    }


def function_of(op, functions):
    """The C function of an op, and which argument of the op each of its parameters is; None without a function."""
    function = functions.get("distag_" + op["name"])
    if function is None:
        return None
    arguments = {argument["name"] for argument in op["inputs"] + op["attributes"]}
    order = []
    for parameter in function["parameters"]:
        if parameter["role"] in ("error", "out", "length"):
            continue
        name = RENAMED.get((function["name"], parameter["name"]), parameter["name"])
        if name not in arguments:
            raise Unfit(f"{function['name']}: {parameter['name']} is no argument of {op['signature']}")
        order.append(name)
    return {"name": function["name"], "arguments": order}


def describe(path, api):
    """The ops of a library, each with its C function, in its order."""
    functions = {function["name"]: function for function in api["functions"]}
    described = []
    for signature, summary in read(path, api):
        op = parse(signature)
        op["function"] = function_of(op, functions)
        op["summary"] = summary
        described.append(op)
    return described
