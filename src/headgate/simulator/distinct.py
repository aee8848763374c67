"""How many different keys there were, in bounded memory: a HyperLogLog sketch.

Each key is hashed; the first bits choose a register, which keeps the longest run of zeros that the
rest of a hash began with. Many different keys make long runs likely. With 2^14 registers the
estimate is within 2.5% in 99 cases of 100. The hash is the same everywhere, so the estimate is too.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

_BITS: Final = 14
_REGISTERS: Final = 1 << _BITS
_REST: Final = 64 - _BITS
_FEW: Final = 3.5 * _REGISTERS
_ALPHA: Final = 0.7213 / (1 + 1.079 / _REGISTERS)


class Distinct:
    """An estimate of how many different keys were added."""

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest = bytearray(_REGISTERS)

    def add(self, key: str) -> None:
        """Count *key*, if it was not counted before."""
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest, "big")
        register, rest = value >> _REST, value & ((1 << _REST) - 1)
        run = _REST - rest.bit_length() + 1
        self._longest[register] = max(self._longest[register], run)

    def __len__(self) -> int:
        """The estimate: while few, by how many registers are still empty, which is more exact."""
        empty = self._longest.count(0)
        few = _REGISTERS * math.log(_REGISTERS / empty) if empty else math.inf
        if few <= _FEW:
            return round(few)
        return round(_ALPHA * _REGISTERS**2 / sum(2.0**-run for run in self._longest))
