"""The place that a launcher gives to this process."""
from __future__ import annotations

from ctypes import byref, sizeof
from typing import NamedTuple

from . import _raw
from ._library import lib
from ._raw import distag_error
from .errors import fail


class Environment(NamedTuple):
    """The place of this process in its group; -1 and 0 where the launcher does not tell, as in the header."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    node: int
    node_count: int
    restart: int
    launcher: str  # "own", "torchrun", "slurm" or "kubernetes"


def get_environment() -> Environment:
    """What a worker without rank and size would take from the environment; UsageError names all that is missing."""
    raw, err = _raw.distag_environment(struct_size=sizeof(_raw.distag_environment)), distag_error()
    if lib.distag_get_environment(byref(raw), byref(err)):
        fail(err)
    return Environment(raw.rank, raw.world_size, raw.local_rank, raw.local_size, raw.node, raw.node_count, raw.restart,
                       raw.launcher.decode())
