"""Words of Rust that the emitters share: types, names, comments."""
import re
import textwrap

from description import Unfit

__all__ = ["Unfit", "camel", "document", "plain", "rust_type", "short_name"]

SCALARS = {"int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "double": "f64", "size_t": "usize",
           "char": "c_char", "void": "c_void"}
KEYWORDS = {"type", "where", "move", "in", "ref", "fn", "final", "box", "use", "match", "loop", "self"}


def plain(name):
    """A name that is no keyword."""
    return name + "_" if name in KEYWORDS else name


def camel(text):
    return "".join(part.capitalize() for part in text.lower().split("_"))


def short_name(function):
    return function[len("distag_"):]


def rust_type(api, type_):
    """A type of C as the raw layer says it."""
    match = re.match(r"(const )?(?:struct )?(\w+)\s*((?:\*\s*(?:const)?\s*)*)$", type_)
    if not match:
        raise Unfit(f"a type that is not known to Rust: {type_}")
    base = match.group(2)
    result = SCALARS.get(base, base)
    if base in api["types"]:
        result = SCALARS[api["types"][base]]
    is_const = bool(match.group(1))
    for const in re.findall(r"\*\s*(const)?", match.group(3)):
        result = f"*{'const' if is_const else 'mut'} {result}"
        is_const = const == "const"
    return result


def document(text, indent=""):
    """A comment of rustdoc, or none. What rustdoc would take for a link or a tag is quoted."""
    if not text:
        return []
    text = re.sub(r"(https?://[^\s,)]+)", r"<\1>", text)
    text = re.sub(r"(?<![`\w])([\w.+-]*\[[^\]`]*\][\w.]*|<(?!http)[^>`]*>|\w+<\w+>)", r"`\1`", text)
    return textwrap.wrap(text, 118 - len(indent), initial_indent=f"{indent}/// ", subsequent_indent=f"{indent}/// ",
                         break_long_words=False, break_on_hyphens=False)
