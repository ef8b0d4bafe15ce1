#!/usr/bin/env python3
"""Compiles the assembly for C# as a package has it: with a strong name, which the cache of assemblies wants, and equal
bytes each time. The key names the assembly, and protects nothing: it is a part of the source.
usage: csharp_assembly.py REPOSITORY OUT.dll"""
import glob
import hashlib
import os
import struct
import subprocess
import sys

SHA1_PREFIX = bytes.fromhex("3021300906052b0e03021a05000414")  # of PKCS 1


class Assembly:
    """The parts of a file in PE format that a strong name needs."""

    def __init__(self, data):
        self.data = data
        self.pe = self.word(0x3c)
        self.optional = self.pe + 24
        self.section_count = struct.unpack_from("<H", data, self.pe + 6)[0]
        self.sections = self.optional + struct.unpack_from("<H", data, self.pe + 20)[0]
        self.cli = self.place(self.word(self.optional + 96 + 8 * 14))

    def word(self, place):
        return struct.unpack_from("<I", self.data, place)[0]

    def raw_sections(self):
        """Address, place and size of each."""
        for index in range(self.section_count):
            _, address, size, place = struct.unpack_from("<IIII", self.data, self.sections + 40 * index + 8)
            yield address, place, size

    def place(self, address):
        """Where in the file an address is."""
        for begin, place, size in self.raw_sections():
            if begin <= address < begin + size:
                return place + address - begin
        raise ValueError(f"address {address:#x} is in no section")

    def module_id(self):
        """The place of the id that a compiler makes anew each time: the first of the heap of ids."""
        root = self.place(self.word(self.cli + 8))
        streams = root + 16 + self.word(root + 12)
        place = streams + 4
        for _ in range(struct.unpack_from("<H", self.data, streams + 2)[0]):
            offset = self.word(place)
            name = bytes(self.data[place + 8:self.data.index(0, place + 8)])
            if name == b"#GUID":
                return root + offset
            place += 8 + (len(name) + 4) // 4 * 4
        raise ValueError("there is no heap of ids")

    def signature(self):
        """Place and size of the strong name."""
        return self.place(self.word(self.cli + 32)), self.word(self.cli + 36)

    def digest(self):
        """Covers the headers, without checksum and certificates, and the sections, without the strong name."""
        headers = self.data[:self.sections + 40 * self.section_count]
        headers[self.optional + 64:self.optional + 68] = bytes(4)
        headers[self.optional + 128:self.optional + 136] = bytes(8)
        place, size = self.signature()
        digest = hashlib.sha1(headers)
        for _, begin, length in self.raw_sections():
            end = begin + length
            if begin <= place < end:
                digest.update(self.data[begin:place])
                begin = place + size
            digest.update(self.data[begin:end])
        return digest.digest()


def sign(assembly, key):
    bits = struct.unpack_from("<I", key, 12)[0]
    size = bits // 8
    modulus = int.from_bytes(key[20:20 + size], "little")
    secret = int.from_bytes(key[-size:], "little")
    padded = b"\0\1".ljust(size - 36, b"\xff") + b"\0" + SHA1_PREFIX + assembly.digest()
    signed = pow(int.from_bytes(padded, "big"), secret, modulus).to_bytes(size, "little")
    place, room = assembly.signature()
    if room != size:
        raise ValueError(f"there is room for {room} bytes of a strong name, not {size}")
    assembly.data[place:place + size] = signed


def main():
    repository, out = sys.argv[1:]
    folder = os.path.join(repository, "bindings", "csharp")
    key = os.path.join(folder, "distag.snk")
    sources = sorted(glob.glob(os.path.join(folder, "*.cs")))
    subprocess.run(["/usr/bin/mcs", "-unsafe", "-warn:4", "-warnaserror", "-target:library", "-delaysign+",
                    f"-keyfile:{key}", f"-out:{out}", *sources], check=True)
    with open(out, "rb") as file:
        assembly = Assembly(bytearray(file.read()))
    digest = hashlib.sha256()
    for path in sources:
        with open(path, "rb") as file:
            digest.update(file.read())
    place = assembly.module_id()
    assembly.data[place:place + 16] = digest.digest()[:16]
    assembly.data[assembly.cli + 16] |= 8  # signed
    with open(key, "rb") as file:
        sign(assembly, file.read())
    with open(out, "wb") as file:
        file.write(assembly.data)


if __name__ == "__main__":
    main()
