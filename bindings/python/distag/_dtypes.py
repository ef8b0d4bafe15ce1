"""Element types."""
from __future__ import annotations

from . import _raw
from ._arguments import invalid


class DType(int):
    """The type of a tensor's elements: its number in the C interface, with its name, size, code for `struct`, and kind and bits of
    DLPack."""

    name: str
    size: int
    format: str
    dlpack: tuple[int, int]

    def __new__(cls, number: int, name: str, size: int, code: str, kind: int) -> "DType":
        dtype = super().__new__(cls, number)
        dtype.name = name
        dtype.size = size
        dtype.format = code
        dtype.dlpack = (kind, 8 * size)
        return dtype

    def __repr__(self) -> str:
        return f"distag.{self.name}"

    def __reduce__(self) -> str:
        return self.name


float32 = DType(_raw.FLOAT32, "float32", 4, "f", 2)
float64 = DType(_raw.FLOAT64, "float64", 8, "d", 2)
int64 = DType(_raw.INT64, "int64", 8, "q", 0)
bool_ = DType(_raw.BOOL, "bool", 1, "?", 6)

BY_NUMBER = {int(dtype): dtype for dtype in (float32, float64, int64, bool_)}
BY_NAME = {dtype.name: dtype for dtype in BY_NUMBER.values()}
FLOATING = (float32, float64)


def dtype_of(given: DType) -> DType:
    """A dtype as it is. A plain number is none: the 3 of zeros(2, 3) is meant as a size."""
    if type(given) is not DType:
        raise invalid(f"dtype: distag.float32, float64, int64 or bool_ is wanted, not {given!r}: a shape of several sizes "
                      "is one list")
    return given
