"""Keys: of a group, or one for each worker, to which its name is bound."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import Array, addressof, byref, c_char_p, sizeof
from typing import Any, NamedTuple

from . import _raw
from ._arguments import flag, invalid, text
from ._library import lib
from ._raw import distag_error
from .errors import fail, kind_of


class KeyPair(NamedTuple):
    """The key of a worker, in text: the secret one is its own, the public one is for the lists of the others."""

    public_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"KeyPair(public_key={self.public_key!r}, secret_key=...)"


def create_keys() -> KeyPair:
    """Makes a key that nobody knows."""
    pair, err = _raw.distag_key_pair(struct_size=sizeof(_raw.distag_key_pair)), distag_error()
    if lib.distag_security_create_keys(byref(pair), byref(err)):
        fail(err)
    return KeyPair(pair.public_key.decode(), pair.secret_key.decode())


def _texts(given: Iterable[str], what: str) -> tuple[Array[c_char_p], int]:
    """An array for C, never at NULL, and its length."""
    if isinstance(given, str):
        raise invalid(f"{what}: a list of texts is wanted, not one text")
    encoded = [text(each, what) for each in given]
    return (c_char_p * (len(encoded) or 1))(*encoded), len(encoded)


def peer_lists(peers: Mapping[str, str]) -> tuple[Array[c_char_p], Array[c_char_p], int]:
    """The names of workers and the public key of each, as arrays."""
    if not isinstance(peers, Mapping):
        raise invalid(f"peers: a dict is wanted, the public key by the name, not {kind_of(peers)}")
    names, count = _texts(peers.keys(), "peers")
    return names, _texts(peers.values(), "peers")[0], count


def security_options(group_key: str | None, secret_key: str | None, peers: Mapping[str, str] | None,
                     rendezvous_name: str | None, initiators: Iterable[str] | None, allow_insecure: bool) -> tuple[Any, list[Any]]:
    """The structure of the options, and what it points to."""
    options = _raw.distag_security_options(struct_size=sizeof(_raw.distag_security_options),
                                           allow_insecure=flag(allow_insecure, "allow_insecure"))
    for field, given in (("group_key", group_key), ("secret_key", secret_key), ("rendezvous_name", rendezvous_name)):
        setattr(options, field, None if given is None else text(given, field))
    keep: list[Any] = []
    if peers is not None:
        names, keys, options.peer_count = peer_lists(peers)
        options.peer_names, options.peer_keys = addressof(names), addressof(keys)
        keep += [names, keys]
    if initiators is not None:
        array, options.initiator_count = _texts(initiators, "initiators")
        options.initiators = addressof(array)
        keep.append(array)
    return options, keep
