"""Messages of distag as bytes, from schemas/ alone: tables by flatc's Python, values, frames, checksums, keys."""
import hashlib
import importlib
import pathlib
import re
import struct
import subprocess
import sys
from typing import NamedTuple

import flatbuffers.compat
import zmq
from zmq.utils import z85

SMALL = 4096  # bytes of pieces that lie in the tail of a header
FORMATS = {1: "f", 2: "d", 3: "q", 4: "?"}  # by dtype
FLOAT32, FLOAT64, INT64, BOOL = FORMATS
RENAMED = {"List": "Items", "Start": "Begin"}  # tables for which flatc's Python has another use
CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


class Malformed(Exception):
    """A message that no worker may send."""


class Id(NamedTuple):
    """As in common.fbs; flatc's own class neither compares nor hashes."""
    maker: int
    counter: int

    def Pack(self, builder):
        return module("Id").CreateId(builder, *self)

    @classmethod
    def InitFromObj(cls, found):
        return cls(found.Maker(), found.Counter())


class Tensor(NamedTuple):
    """Row-major numbers."""
    dtype: int
    shape: tuple
    numbers: list


def floats(*numbers):
    return Tensor(FLOAT32, (len(numbers),), list(numbers))


def integers(*numbers):
    return Tensor(INT64, (len(numbers),), list(numbers))


class Reference(NamedTuple):
    """To a value of some worker. fork is None where that is the receiver."""
    value: Id
    owner: int
    owner_rank: int
    fork: Id


class Item:
    """An item of [Value], whose table is known once its type is."""

    def __init__(self, table):
        self.table = table

    @classmethod
    def InitFromObj(cls, found):
        return cls(found._tab)


# ---- tables ----

def generate(flatc, schemas, folder):
    """Lets flatc write its Python. It refuses vectors of unions there, so they are spelled as they lie on the wire: two
    vectors, of the types and of the tables (see values.fbs); and it gets names into each other's way."""
    for path in pathlib.Path(schemas).glob("*.fbs"):
        text = re.sub(r"(\w+): \[Value\]", r"\1_type: [ubyte]; \1: [Item]", path.read_text(encoding="utf-8"))
        text = text.replace("table Null {}", "table Null {} table Item {}")
        text = re.sub(r"\b(List|Start)\b", lambda found: RENAMED[found[0]], text)
        pathlib.Path(folder, path.name).write_text(text.replace("distag.protocol", "protocol"), encoding="utf-8")
    files = sorted(map(str, pathlib.Path(folder).glob("*.fbs")))
    subprocess.run([flatc, "--python", "--gen-object-api", "-o", str(folder), *files], check=True)
    flatbuffers.compat.import_numpy = lambda: None  # vectors as lists
    sys.path.insert(0, str(folder))
    module("Id").IdT = Id
    module("Item").ItemT = Item


def module(name):
    return importlib.import_module(f"protocol.{name}")


def new(table_name, /, **fields):
    """A table (or struct) with these fields."""
    table = getattr(module(table_name), table_name + "T")()
    for field, value in fields.items():
        getattr(table, field)  # a wrong name fails
        setattr(table, field, value)
    return table


def kind(table):
    return type(table).__name__[:-1]


def number_of(enum, name):
    return getattr(getattr(module(enum), enum), name)


# ---- values ----

class Writer:
    """Values to tables, and their bytes to the tail and the payload frames."""

    def __init__(self):
        self.tail = b""
        self.frames = []

    def piece(self, data):
        if not data or len(self.tail) + len(data) <= SMALL:
            self.tail += data
            return new("Piece", size=len(data), lane=number_of("Lane", "Tail"))
        self.frames.append(data)
        return new("Piece", size=len(data), lane=number_of("Lane", "Frame"))

    def table(self, value):
        if value is None:
            return new("Null")
        if isinstance(value, Tensor):
            data = struct.pack(f"<{len(value.numbers)}{FORMATS[value.dtype]}", *value.numbers)
            return new("Tensor", dtype=value.dtype, shape=list(value.shape), data=self.piece(data))
        if isinstance(value, Reference):
            return new("Reference", value=value.value, owner=value.owner, ownerRank=value.owner_rank, fork=value.fork)
        if isinstance(value, (bool, int, float)):
            return new({bool: "Bool", int: "Int64", float: "Float64"}[type(value)], value=value)
        if isinstance(value, (str, bytes)):
            return new("Text" if isinstance(value, str) else "Bytes",
                       data=self.piece(value.encode() if isinstance(value, str) else value))
        if isinstance(value, list) and value and all(type(each) is int for each in value):
            return new("Int64List", data=self.piece(struct.pack(f"<{len(value)}q", *value)))
        if isinstance(value, list):
            tables = [self.table(each) for each in value]
            return new("Items", items=tables, itemsType=types_of(tables))
        entries = [(key, self.table(value[key])) for key in sorted(value, key=str.encode)]
        return new("Map", entries=[new("Entry", key=key, value=table, valueType=number_of("Value", kind(table)))
                                   for key, table in entries])


def types_of(tables):
    return [number_of("Value", kind(table)) for table in tables]


class Reader:
    """The other way round."""

    def __init__(self, tail, frames):
        self.tail = tail
        self.frames = list(frames)

    def piece(self, piece):
        if piece.lane == number_of("Lane", "Frame"):
            data = self.frames.pop(0) if self.frames else b""
        else:
            data, self.tail = self.tail[:piece.size], self.tail[piece.size:]
        if len(data) != piece.size:
            raise Malformed(f"a piece of {piece.size} bytes has {len(data)}")
        return data

    def values(self, types, items):
        return [self.value(module("Value").ValueCreator(type_, item.table))
                for type_, item in zip(types or [], items or [])]

    def value(self, table):
        name = kind(table)
        if name == "Null":
            return None
        if name == "Tensor":
            data, shape = self.piece(table.data), tuple(table.shape or ())
            return Tensor(table.dtype, shape, [one for one, in struct.iter_unpack("<" + FORMATS[table.dtype], data)])
        if name in ("Bool", "Int64", "Float64"):
            return table.value
        if name in ("Text", "Bytes"):
            data = self.piece(table.data)
            return data.decode() if name == "Text" else data
        if name == "Int64List":
            return [one for one, in struct.iter_unpack("<q", self.piece(table.data))]
        if name == "Items":
            return self.values(table.itemsType, table.items)
        if name == "Map":
            return {entry.key.decode(): self.value(entry.value) for entry in table.entries or []}
        return Reference(table.value, table.owner, table.ownerRank, table.fork)

    def end(self):
        if self.tail or self.frames:
            raise Malformed("bytes that belong to no value")


# ---- messages ----

def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for each in data:
        crc = CRC_TABLE[(crc ^ each) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def checksum(frames, at):
    """CRC32C of a message whose checksum lies at `at` in the header."""
    header = frames[0][:at] + bytes(4) + frames[0][at + 4:]
    rest = b"".join(struct.pack("<Q", len(frame)) + frame for frame in frames[1:])
    return crc32c(rest, crc32c(header))


def encode(body, writer=None, transfers=None):
    """The frames of a message whose place is not known yet: see place()."""
    writer = writer or Writer()
    message = new("Message", place=new("Place"), body=body, bodyType=number_of("Body", kind(body)),
                  checksum=new("Checksum"), transfers=transfers)
    builder = flatbuffers.Builder(1024)
    builder.FinishSizePrefixed(message.Pack(builder), b"DTG1")
    return [bytes(builder.Output()) + writer.tail, *writer.frames]


def place(frames, number, ack):
    """The same message at its place in the stream."""
    found = root(frames[0])
    header, at = bytearray(frames[0]), found.Checksum()._tab.Pos
    struct.pack_into("<QQ", header, found.Place()._tab.Pos, number, ack)
    struct.pack_into("<I", header, at, checksum([bytes(header), *frames[1:]], at))
    return [bytes(header), *frames[1:]]


def root(header):
    return module("Message").Message.GetRootAs(header, 4)


def decode(frames):
    """The message, and the reader of its values. Malformed where its checksum does not hold."""
    size = 4 + struct.unpack_from("<I", frames[0])[0]
    at = root(frames[0]).Checksum()._tab.Pos
    if struct.unpack_from("<I", frames[0], at)[0] != checksum(frames, at):
        raise Malformed("the checksum does not hold")
    message = module("Message").MessageT.InitFromObj(root(frames[0]))
    return message, Reader(frames[0][size:], frames[1:])


# ---- keys ----

def group_keys(secret):
    """The pair of keys of CURVE, in Z85, that all have who know the group key (see session.fbs)."""
    seed = hashlib.blake2b(secret.encode(), digest_size=32, key=b"distag group key 1").digest()
    own = z85.encode(hashlib.sha512(seed).digest()[:32])
    return zmq.curve_public(own), own


def plan_hash(slots):
    """Expect.check, of (pair, slot) of recvs."""
    total = 0
    for pair, slot in slots:
        value = slot + 1
        for each in pair:
            value = (value ^ each) * 0x9E3779B97F4A7C15 % 2**64
            value ^= value >> 32
        total += value
    return total % 2**64
