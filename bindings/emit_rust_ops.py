"""Writes ops.rs of bindings/rust: a function for each built-in op, and a method where its first input is a tensor. What
an op may leave out stands in a struct of options, for a second function that ends in `_with`."""
import re
import textwrap

from operations import LEFT_OUT
from rust_text import camel, document, plain, short_name

TYPES = {"int64": "i64", "float64": "f64", "bool": "bool", "text": "&'a str", "int64[]": "&'a [i64]", "dtype": "DType"}
KINDS = {"int64": "Int", "float64": "Float", "bool": "Bool", "text": "Text", "int64[]": "Ints", "dtype": "DType"}
# Methods whose name is one of Rust's own, for another thing: Clone::clone, PartialEq::eq.
RENAMED = {"clone": "clone_data", **{name: name + "_elements" for name in ("eq", "ne", "lt", "le", "gt", "ge")}}


def wrapped(line):
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return [line] if len(line) <= 118 else textwrap.wrap(line, 118, subsequent_indent=indent, break_long_words=False,
                                                         break_on_hyphens=False)


class Op:
    def __init__(self, op, function):
        self.op = op
        self.name = plain(op["name"])
        self.function = function
        self.taken = set(op["function"]["arguments"]) if op["function"] else set()
        self.options = []   # name, type, default of each member of the struct
        self.required = []  # name and type of each parameter
        self.sort()
        self.result = "Tensor" if op["outputs"] == 1 else "Vec<Tensor>"

    def sort(self):
        """Optional tensors that the C function takes are parameters; the others, and what has a default, are options."""
        attributes = self.op["attributes"]
        last = max((i for i, each in enumerate(attributes) if "default" not in each), default=-1)
        for each in self.op["inputs"]:
            if each["kind"] == "many":
                self.required.append((each["name"], "&[&Tensor]"))
            elif each["kind"] == "one":
                self.required.append((each["name"], "&Tensor"))
            elif each["name"] in self.taken:
                self.required.append((each["name"], "Option<&Tensor>"))
            else:
                self.options.append((each["name"], "Option<&'a Tensor>", "None"))
        for index, each in enumerate(attributes):
            type_ = TYPES[each["type"]]
            if index <= last or each["name"] == "shape":
                self.required.append((plain(each["name"]), type_.replace("'a ", "")))
            else:
                self.options.append((plain(each["name"]), *self.default_of(each, type_)))

    def default_of(self, attribute, type_):
        text, kind = attribute["default"], attribute["type"]
        if attribute["name"] in LEFT_OUT:
            return f"Option<{type_}>", "None"
        if kind == "int64[]":
            if text == "[]":
                return type_, "&[]"
            return (type_, "&" + re.sub(r",(?=\S)", ", ", text)) if text.startswith("[") else (f"Option<{type_}>", "None")
        if kind == "dtype":
            return type_, f"DType::{camel(text)}"
        if kind == "text":
            return type_, f'"{text}"'
        if kind == "float64":
            return type_, {"-inf": "f64::NEG_INFINITY", "inf": "f64::INFINITY"}.get(
                text, text if re.search(r"[.e]", text) else text + ".0")
        return type_, "i64::MAX" if text == "9223372036854775807" else text

    def struct(self):
        return camel(self.op["name"])

    def life(self):
        return "<'a>" if any("'a" in type_ for _, type_, _ in self.options) else ""

    def summary(self):
        if self.op["summary"]:
            return self.op["summary"]
        comment = self.function["comment"] if self.function else ""
        return comment if comment and not comment.startswith("Elementwise functions") else self.op["signature"]

    def options_text(self):
        life = self.life()
        unused = "'_" if life else ""
        attributes = {plain(each["name"]): each for each in self.op["attributes"]}
        is_plain = all(default in ("0", "0.0", "false", "None", "&[]") for _, _, default in self.options)
        derived = "Clone, Copy, Debug, Default" if is_plain else "Clone, Copy, Debug"
        lines = ["", f"/// What [`{self.full_name()}`] may be given.", f"#[derive({derived})]",
                 f"pub struct {self.struct()}{life} {{"]
        for name, type_, default in self.options:
            of_other = name in attributes and default == "None"
            rest = f", {LEFT_OUT[name]}" if name in LEFT_OUT else ""
            comment = f"`{default if not of_other else attributes[name]['default']}` unless set{rest}."
            lines += textwrap.wrap(comment, 114, initial_indent="    /// ", subsequent_indent="    /// ")
            lines.append(f"    pub {name}: {type_},")
        if is_plain:
            return lines + ["}"]
        lines += ["}", f"impl Default for {self.struct()}{'<' + unused + '>' if life else ''} {{",
                  "    fn default() -> Self {", "        Self {"]
        lines += [f"            {name}: {default}," for name, _, default in self.options]
        return lines + ["        }", "    }", "}"]

    def value(self, name):
        """An argument: a parameter, or a member of the options."""
        for option, type_, _ in self.options:
            if option == plain(name):
                if type_ == "Option<&'a [i64]>":
                    other = next(each["default"] for each in self.op["attributes"] if each["name"] == name)
                    return f"options.{option}.unwrap_or({other})"
                return f"options.{option}"
        return plain(name)

    def conditions(self):
        """What has to hold for the C function, which takes fewer arguments, to mean the same."""
        for name, type_, default in self.options:
            if name in {plain(each) for each in self.taken}:
                continue
            if default == "None":
                yield f"options.{name}.is_none()"
            else:
                yield f"options.{name} == {default.lstrip('&')}"

    def windows(self):
        return [each["name"] for each in self.function["parameters"] if isinstance(each.get("length"), int)]

    def call(self):
        names = iter(self.op["function"]["arguments"])
        attributes = {each["name"]: each for each in self.op["attributes"]}
        inputs = {each["name"]: each["kind"] for each in self.op["inputs"]}
        arguments = []
        for parameter in self.function["parameters"]:
            if parameter["role"] in ("error", "out", "length"):
                continue
            name = next(names)
            value = self.value(name)
            if name in inputs:
                arguments.append({"one": f"{value}.handle()", "optional": f"{value}.map(Tensor::handle)",
                                  "many": f"&Tensor::handles({value})"}[inputs[name]])
            elif isinstance(parameter.get("length"), int):
                arguments.append(name + "_window")
            elif attributes[name]["type"] == "bool":
                arguments.append(f"i32::from({value})")
            elif attributes[name]["type"] == "dtype":
                arguments.append(f"{value}.to_raw()")
            elif parameter["type"] == "uint64_t":
                arguments.append(f"{value} as u64")
            else:
                arguments.append(value)
        return f"functions::{short_name(self.function['name'])}({', '.join(arguments)}).map(Tensor::of_handle)"

    def apply(self):
        is_many = self.op["inputs"] and self.op["inputs"][0]["kind"] == "many"
        if is_many:
            given = f"&{self.op['inputs'][0]['name']}.iter().map(|&each| Some(each)).collect::<Vec<_>>()"
        else:
            given = "&[" + ", ".join(self.value(each["name"]) if each["kind"] == "optional" else f"Some({each['name']})"
                                     for each in self.op["inputs"]) + "]"
        always = [each for each in self.op["attributes"] if each["name"] not in LEFT_OUT]
        attributes = "[" + ", ".join(f'("{each["name"]}", {self.attribute(each)})' for each in always) + "]"
        lines = []
        if len(always) < len(self.op["attributes"]):
            lines.append(f"let mut attributes = vec!{attributes};")
            attributes = "attributes"
        for each in self.op["attributes"]:
            if each["name"] in LEFT_OUT:
                lines.append(f"attributes.extend({self.value(each['name'])}.map(|given| (\"{each['name']}\", "
                             f"Attribute::{KINDS[each['type']]}(given))));")
        count = self.op["outputs"]
        if count == 1:
            return lines + [f"apply::one(\"{self.op['name']}\", {given}, &{attributes})"]
        length = f"{self.value(self.op['attributes'][0]['name'])}.len()" if count == "many" else count
        return lines + [f"apply::many(\"{self.op['name']}\", {given}, &{attributes}, {length})"]

    def attribute(self, each):
        return f"Attribute::{KINDS[each['type']]}({self.value(each['name'])})"

    def body(self):
        if self.op["function"] is None:
            return self.apply()
        windows = self.windows()
        conditions = list(self.conditions())
        if not windows and not conditions:
            return [self.call()]
        lines = []
        if windows:
            pairs = ", ".join(f"<&[i64; 2]>::try_from({self.value(name)})" for name in windows)
            names = ", ".join(f"Ok({name}_window)" for name in windows)
            lines.append(f"if let ({names}) = ({pairs}) {{")
        else:
            lines.append("{")
        if conditions:
            lines += [f"    if {' && '.join(conditions)} {{", f"        return {self.call()};", "    }"]
        else:
            lines.append(f"    return {self.call()};")
        lines.append("}")
        if not windows:  # without the block
            lines = [line[4:] for line in lines[1:-1]]
        return lines + self.apply()

    def head(self, name, parameters):
        # No name begins with _, which would mark an unused parameter.
        return f"pub fn {name}({', '.join(parameters)}) -> Result<{self.result}> {{"

    def short_parameters(self, skip=0):
        return [f"{name}: {type_}" for name, type_ in self.required[skip:]]

    def options_parameter(self):
        return f"options: {self.struct()}" + ("<'_>" if self.life() else "")

    def errors(self, indent=""):
        return [f"{indent}///", f"{indent}/// # Errors",
                f"{indent}/// Shapes and dtypes that do not fit: the message names op, shapes and dtypes."]

    def function_text(self):
        lines = [""] + document(self.summary()) + self.errors()
        if not self.options:
            lines += wrapped(self.head(self.name, self.short_parameters()))
            return lines + [part for line in self.body() for part in wrapped("    " + line)] + ["}"]
        names = ", ".join([name for name, _ in self.required] + [f"{self.struct()}::default()"])
        lines += wrapped(self.head(self.name, self.short_parameters()))
        lines += wrapped(f"    {self.full_name()}({names})") + ["}"]
        lines += [""] + document(f"As [`{self.name}`]({self.name}()), with what it may be given.") + self.errors()
        lines += wrapped(self.head(self.full_name(), self.short_parameters() + [self.options_parameter()]))
        return lines + [part for line in self.body() for part in wrapped("    " + line)] + ["}"]

    def full_name(self):
        return self.op["name"] + "_with"

    def is_method(self):
        return bool(self.op["inputs"]) and self.op["inputs"][0]["kind"] == "one"

    def method_text(self):
        names = ["self"] + [name for name, _ in self.required[1:]]
        method = RENAMED.get(self.op["name"], self.name)
        lines = [""] + document(self.summary(), "    ") + self.errors("    ")
        lines += wrapped("    " + self.head(method, ["&self"] + self.short_parameters(1)))
        lines += wrapped(f"        {self.name}({', '.join(names)})") + ["    }"]
        if self.options:
            lines += [""] + document(f"As [`{method}`](Tensor::{method}), with what it may be given.", "    ")
            lines += self.errors("    ")
            lines += wrapped("    " + self.head(method.rstrip("_") + "_with",
                                                ["&self"] + self.short_parameters(1) + [self.options_parameter()]))
            lines += wrapped(f"        {self.full_name()}({', '.join(names + ['options'])})") + ["    }"]
        return lines


def all_ops(api):
    functions = {function["name"]: function for function in api["functions"]}
    return [Op(op, functions[op["function"]["name"]] if op["function"] else None) for op in api["ops"]]


def text(api, generated):
    ops = all_ops(api)
    lines = [generated + "//! The built-in ops. Each is one call of the header. `f_with` takes what `f` leaves out.",
             "//!", "//! ```", "//! use distag::ops;",
             "//! let x = ops::arange(0.0, 4.0)?.reshape(&[2, 2])?;",
             "//! assert_eq!(ops::sum(&x)?.item()?, 6.0); // or x.sum()",
             "//! let rows = x.sum_with(ops::Sum { dims: &[1], ..Default::default() })?;",
             "//! assert_eq!(*rows.view::<f32>()?, [1.0, 5.0]);", "//! # Ok::<(), distag::Error>(())", "//! ```",
             "use crate::apply::{self, Attribute};", "use crate::error::Result;", "use crate::ffi::functions;",
             "use crate::{DType, Tensor};"]
    for op in ops:
        if op.options:
            lines += op.options_text()
        lines += op.function_text()
    lines += ["", "/// The ops whose first input is a tensor.", "impl Tensor {"]
    for op in ops:
        if op.is_method():
            lines += op.method_text()
    lines.append("}")
    names = ", ".join(f'"{op.op["name"]}"' for op in ops)
    lines += ["", "/// The names of all built-in ops.", "pub const NAMES: &[&str] = &["]
    lines += textwrap.wrap(names, 114, initial_indent="    ", subsequent_indent="    ") + ["];"]
    return "\n".join(lines) + "\n"
