"""Describes distag.h for bindings: what bindings/api.json holds, made from the text of the header by its conventions.

Nearly all of it follows from names and types. What does not stands in the tables of exceptions below; a function that
fits neither is `Unfit`."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "header"))
import abi  # noqa: E402
import header_text  # noqa: E402

SCALARS = ("int32_t", "uint32_t", "int64_t", "uint64_t", "double", "size_t", "char")

# Arrays whose length is not the parameter, or the member, behind them: its name, a number, or a text for people.
LENGTHS = {
    ("distag_tensor_create_borrowed", "shape"): "ndim",
    ("distag_value_create_map", "keys"): "count",
    ("distag_conv2d", "stride"): 2,
    ("distag_conv2d", "padding"): 2,
    ("distag_max_pool2d", "kernel"): 2,
    ("distag_max_pool2d", "stride"): 2,
    ("distag_max_pool2d", "padding"): 2,
    ("distag_tensor_get_shape", "return"): "ndim of the tensor",
    ("distag_tensor_get_strides", "return"): "ndim of the tensor",
    ("distag_tensor_get_data", "return"): "bytes that shape, strides and dtype say",
    ("distag_op_info", "attribute_names"): "attribute_count",
    ("distag_security_options", "peer_names"): "peer_count",
    ("distag_security_options", "initiators"): "initiator_count",
    ("distag_worker_set_peers", "names"): "count",
    ("distag_backward_options", "seeds"): "root_count of the call",
    ("distag_box_source", "offset"): "ndim",
    ("distag_mesh_copy_box", "offset"): "ndim",
    ("distag_mesh_copy_box", "extent"): "ndim",
    ("distag_mesh_create", "shape"): "ndim",
    ("distag_mesh_create_async", "shape"): "ndim",
    ("distag_mesh_options", "outer_shape"): "ndim of the call",
    ("distag_mesh_options", "granules"): "rank_count of the call; without ranks the living members",
    ("distag_loader_options", "keys"): "spec_count",
    ("distag_plan_options", "names"): "leaf_count",
    ("distag_plan_options", "leaves"): "leaf_count",
    ("distag_plan_options", "patterns"): "rule_count",
    ("distag_plan_options", "specs"): "rule_count",
    ("distag_mesh_info", "shape"): "ndim",
    ("distag_mesh_info", "axis_names"): "ndim",
    ("distag_mesh_info", "ranks"): "count",
    ("distag_mesh_info", "granules"): "count",
    ("distag_tensor_info", "shape"): "ndim",
    ("distag_tensor_info", "strides"): "ndim",
}
LENGTH_NAME = r"(size|count|ndim|capacity|\w+_count)$"
# Run host code of other tools than callbacks, or may: what blocks, polls, applies custom ops, or drops a reference.
CALLS_BACK = r"_release$|_worker_poll$|_take_event$|^distag_apply_custom$"


class Unfit(Exception):
    """A part of the header that neither the conventions nor the exceptions explain."""


def paragraph(text):
    return " ".join(text.split())


class Reader:
    """The header, and the names of types in it."""

    def __init__(self, text):
        self.text = text
        self.typedefs = header_text.typedefs(text)
        self.handles = set(header_text.handles(text))
        self.structs = set(header_text.struct_members(text))
        self.callbacks = {callback.name for callback in header_text.callbacks(text)}
        self.foreign = set(re.findall(r"(?:^|; )struct (\w+);", text, re.M))
        self.enum_types = header_text.enum_types(text)
        self.since = header_text.slot_versions(text)
        self.slots = slots_of(text)

    def is_scalar(self, type_):
        return type_ in SCALARS or type_ in self.typedefs

    def is_handle(self, type_):
        return type_.startswith("distag_") and type_[len("distag_"):] in self.handles

    def base(self, type_):
        """What a pointer points to, without const."""
        return re.sub(r"^const |\s*\*$", "", type_)

    # ---- parameters ----

    def describe_parameters(self, where, parameters, owned):
        """A list of parameters; `owned` says whether handles that are written are the caller's."""
        described = []
        for index, parameter in enumerate(parameters):
            entry = {"name": parameter.name, "type": parameter.type}
            entry.update(self.role(where, parameters, index, owned))
            if "nullable" in parameter.note:
                entry["nullable"] = True
            if "_timeout_ns" in parameter.name or parameter.name.endswith("_ns"):
                entry["unit"] = "ns"
            described.append(entry)
        lengths = {entry["length"] for entry in described if isinstance(entry.get("length"), str)}
        for entry in described:
            if entry["role"] == "in" and entry["name"] in lengths:
                entry["role"] = "length"
        return described

    def role(self, where, parameters, index, owned):
        parameter = parameters[index]
        type_, name = parameter.type, parameter.name
        if type_ == "distag_error *":
            return {"role": "error"}
        if type_ == "void *":
            return self.role_of_memory(where, parameters, index)
        if type_ in self.callbacks:
            return self.role_of_callback(where, parameters, index)
        if name.startswith("out_"):
            return self.role_of_out(where, parameters, index, owned)
        if self.is_scalar(type_):
            return {"role": "in"}
        if type_ == "const char *":
            return {"role": "in", "kind": "text"}
        if type_.endswith(" *") and (self.is_handle(self.base(type_)) or self.foreign_of(type_)) and (
                not type_.startswith("const")):
            return {"role": "take" if "take" in parameter.note.split() else "in", "kind": "handle"}
        if type_.startswith("const ") and self.base(type_) in self.structs:
            return {"role": "in", "kind": "struct"}
        return self.role_of_array(where, parameters, index)

    def foreign_of(self, type_):
        match = re.match(r"struct (\w+) \*", type_)
        return match is not None and match.group(1) in self.foreign

    def role_of_memory(self, where, parameters, index):
        names = [parameter.name for parameter in parameters]
        if names[index] in ("user_data", "object"):
            return {"role": "user_data"}
        if names[index] == "memory" or names[index] == "data":
            return {"role": "in", "kind": "memory"}
        return self.role_of_array(where, parameters, index)

    def role_of_callback(self, where, parameters, index):
        names = [parameter.name for parameter in parameters]
        if not {"user_data", "object"} & set(names):
            raise Unfit(f"{where}: {names[index]}: a callback without user_data")
        if names[index] == "destroy":
            return {"role": "destroy"}
        if "destroy" not in names:
            raise Unfit(f"{where}: {names[index]}: a callback without destroy")
        return {"role": "callback"}

    def role_of_out(self, where, parameters, index, owned):
        type_, name = parameters[index].type, parameters[index].name
        target = self.base(type_)
        following = parameters[index + 1].name if index + 1 < len(parameters) else ""
        if type_.endswith(" **") and (self.is_handle(self.base(target)) or self.foreign_of(target)):
            kind = {"role": "out", "kind": "handle", "owned": owned or self.foreign_of(target)}
            return dict(kind, length=following) if re.match(r"\w+_count$", following) else kind
        if target in self.structs:
            return {"role": "fill", "kind": "struct"}
        if self.is_scalar(target) and type_ == f"{target} *":
            return {"role": "out", "kind": "scalar"}
        if type_ == "const char **":
            return {"role": "out", "kind": "text", "owned": False}
        if type_ in ("const void **", "void **"):
            return {"role": "out", "kind": "memory", "owned": False}
        raise Unfit(f"{where}: {name}: no convention says what is written to `{type_}`")

    def role_of_array(self, where, parameters, index):
        type_, name = parameters[index].type, parameters[index].name
        following = parameters[index + 1].name if index + 1 < len(parameters) else ""
        item = re.match(r"(?:const )?(void|\w+|(?:const )?\w+ \*const) \*$", type_)
        if not item:
            raise Unfit(f"{where}: {name}: no convention explains the type `{type_}`")
        length = LENGTHS.get((where, name))
        if length is None and re.match(LENGTH_NAME, following):
            length = following
        if length is None:
            raise Unfit(f"{where}: {name}: an array without its length behind it")
        is_written = not type_.startswith("const") and "*const" not in type_
        if is_written and length != "capacity" and (where, name) not in LENGTHS:
            raise Unfit(f"{where}: {name}: what is written is an out_ parameter, or has its capacity behind it")
        return {"role": "buffer" if is_written else "array", "length": length}

    # ---- what a function returns ----

    def describe_return(self, function):
        type_ = function.result
        if type_ == "void":
            return {"type": type_, "kind": "nothing"}
        if type_ == "distag_status" and function.name != "distag_error_set" or self.is_scalar(type_):
            return {"type": type_, "kind": "status" if type_ == "distag_status" else "scalar"}
        entry = {"type": type_, "owned": False}
        if type_ == "const char *":
            return dict(entry, kind="text")
        if self.is_handle(self.base(type_)):
            return dict(entry, kind="handle")
        if type_ == "const distag_api *":
            return dict(entry, kind="table")
        length = LENGTHS.get((function.name, "return"))
        if length is None:
            raise Unfit(f"{function.name}: no convention says how long what `{type_}` points to is")
        return dict(entry, kind="array", length=length)

    # ---- functions ----

    def describe_function(self, function, names):
        comment = paragraph(header_text.comment_of(self.text, function))
        is_async = function.name.endswith("_async")
        blocks = not is_async and re.search(r"\bBlocks\b", comment) is not None
        returned = self.describe_return(function)
        entry = {
            "name": function.name,
            "slot": self.slots.get(function.name),
            "since": self.since.get(function.name, "0.1"),
            "comment": comment,
            "note": note_behind(self.text, function),
            "parameters": self.describe_parameters(function.name, function.parameters,
                                                   not header_text.lends(self.text, function)),
            "returns": returned,
            "blocks": blocks,
            "async": function.name + "_async" if function.name + "_async" in names else None,
        }
        roles = {parameter["role"] for parameter in entry["parameters"]}
        entry["may_call_back"] = bool(blocks or re.search(CALLS_BACK, function.name) or "destroy" in roles)
        return entry

    def describe_functions(self):
        functions = header_text.functions(self.text)
        names = {function.name for function in functions}
        return [self.describe_function(function, names) for function in functions]

    def describe_callbacks(self):
        described = []
        for callback in header_text.callbacks(self.text):
            described.append({
                "name": callback.name,
                "comment": paragraph(header_text.comment_of(self.text, callback)),
                "parameters": self.describe_parameters(callback.name, callback.parameters, True),
                "returns": {"type": callback.result},
            })
        return described

    # ---- types ----

    def describe_constants(self):
        return [{"name": name, "value": value} for name, value in header_text.constants(self.text).items()]

    def describe_enums(self):
        described = []
        for name, values in header_text.enums(self.text).items():
            typedef = self.enum_types.get(name)
            described.append({
                "name": name, "typedef": typedef, "type": self.typedefs.get(typedef),
                "values": [{"name": value.name, "value": value.value, "comment": value.note} for value in values],
            })
        return described

    def enum_of(self, member):
        """The enum that a member holds: by its type, or by `DISTAG_EXECUTOR_...` in its comment."""
        prefix = re.match(r"(DISTAG_\w+_)\.\.\.", member.note)
        for name, values in header_text.enums(self.text).items():
            if self.enum_types.get(name) == member.type:
                return name
            if prefix and all(value.name.startswith(prefix.group(1)) for value in values):
                return name
        return None

    def describe_member(self, struct, members, index, offset):
        member = members[index]
        entry = {"name": member.name, "type": member.type, "offset": offset, "comment": member.note}
        if member.count != 1:
            entry["count"] = member.count
        if "nullable" in member.note:
            entry["nullable"] = True
        if self.enum_of(member):
            entry["enum"] = self.enum_of(member)
        pointee = re.match(r"(?:const )?(?:char \*const|\w+ \*const|int\d+_t) \*$", member.type)
        if pointee:
            following = members[index + 1].name if index + 1 < len(members) else ""
            length = LENGTHS.get((struct, member.name)) or (following if re.match(LENGTH_NAME, following) else None)
            if length is None:
                raise Unfit(f"{struct}: {member.name}: an array without its length behind it")
            entry["length"] = length
        return entry

    def describe_structs(self):
        described = []
        sizes = dict(abi.SIZES, **{name: abi.SIZES[base] for name, base in self.typedefs.items()})
        for name, members in header_text.struct_members(self.text).items():
            body = "".join(f"{declaration_of(member)};" for member in members)
            offsets = [offset for offset, _, _ in abi.members(body, sizes)]
            described.append({
                "name": name,
                "size": size_of(members, offsets, sizes),
                "members": [self.describe_member(name, members, index, offset) for index, offset in enumerate(offsets)],
            })
        return described

    def describe_handles(self):
        names = {function.name for function in header_text.functions(self.text)}
        described = []
        for name, note in header_text.handles(self.text).items():
            threads = re.search(r"\b(immutable|thread-safe|shared-read|lent)\s*$", note.strip())
            described.append({
                "name": name, "type": f"distag_{name}", "comment": paragraph(note),
                "threads": threads.group(1) if threads else None,
                "retain": f"distag_{name}_retain" if f"distag_{name}_retain" in names else None,
                "release": f"distag_{name}_release" if f"distag_{name}_release" in names else None,
            })
        return described

    def describe(self):
        constants = header_text.constants(self.text)
        return {
            "version": ".".join(str(constants[f"DISTAG_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH")),
            "abi_major": constants["DISTAG_ABI_MAJOR"],
            "constants": self.describe_constants(),
            "types": self.typedefs,
            "foreign_structs": sorted(self.foreign),
            "enums": self.describe_enums(),
            "handles": self.describe_handles(),
            "callbacks": self.describe_callbacks(),
            "structs": self.describe_structs(),
            "functions": self.describe_functions(),
            "slots": list(self.slots.values()),  # in the order of the function table
        }


def declaration_of(member):
    """A member as abi.members reads it."""
    if "(*)" in member.type:
        return member.type.replace("(*)", f"(*{member.name})")
    return f"{member.type} {member.name}" + (f"[{member.count}]" if member.count != 1 else "")


def size_of(members, offsets, sizes):
    """The size of a struct, whose last member may be followed by a gap."""
    widths = [abi.POINTER_SIZE if "*" in member.type else sizes.get(member.type.split()[-1], abi.POINTER_SIZE)
              for member in members]
    end = offsets[-1] + widths[-1] * members[-1].count
    return -(-end // max(widths)) * max(widths)


def slots_of(text):
    """The slot of each function that has one."""
    table = header_text.without_comments(header_text.TABLE.search(text).group(0))
    return {header_text.slot_function(slot): slot for slot in re.findall(r"(?:\(\*|\b(?=op_))(\w+)\b", table)}


def note_behind(text, function):
    """The comment behind a declaration, on its last line."""
    lines = text.split("\n")
    last = next(line for line in lines[function.line - 1:] if line.rstrip().endswith(";") or "; " in line or
                re.search(r"\);\s*/\*", line))
    match = re.search(r"\);\s*/\*(.*?)\*/", last)
    return paragraph(match.group(1)) if match else ""


def owning_structs(api):
    """The structs whose user_data is to be destroyed, each behind those that it points to: {name: members that point}."""
    owning = {struct["name"]: struct for struct in api["structs"] if any(each["name"] == "destroy" for each in struct["members"])}
    inner = {name: {each["name"]: target for each in struct["members"] for target in owning if each["type"] == f"const {target} *"}
             for name, struct in owning.items()}
    return dict(sorted(inner.items(), key=lambda entry: len(entry[1])))  # none points to one that points


def given_structs(api, function):
    """The parameters of a function that point to such a struct: {name of the parameter: struct}."""
    return {each["name"]: target for each in function["parameters"] for target in owning_structs(api)
            if each["type"] == f"const {target} *"}


def describe(text):
    return Reader(text).describe()
