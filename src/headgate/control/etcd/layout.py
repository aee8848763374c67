"""How revisions lie in etcd.

    <prefix>policy                          the newest revision
    <prefix>history/<number, 20 digits>     each revision that is kept, the newest too

A value is the JSON of `Revision.to_json` with one more member in front: a `nonce`, by which a
writer knows again what it wrote when it lost the answer. What is longer than 16 KiB is compressed
by zlib. Both can be told by the first byte: JSON begins with a brace.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from headgate.control.revision import Revision, StorageError, revision_from_json

_PLAIN: Final = 16_384
_LONGEST: Final = 64 * 2**20
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys below *prefix*."""

    prefix: str

    @property
    def head(self) -> bytes:
        """The key of the newest revision."""
        return f"{self.prefix}policy".encode()

    @property
    def oldest(self) -> bytes:
        """What no key of a revision is below."""
        return self.at(0)

    def at(self, number: int) -> bytes:
        """The key of the revision *number*; the keys are in the order of the numbers."""
        return f"{self.prefix}history/{number:0{_DIGITS}}".encode()

    @property
    def end(self) -> bytes:
        """What the key of every revision is below."""
        return f"{self.prefix}history0".encode()  # '0' comes after '/'


def encode(revision: Revision, nonce: str) -> bytes:
    """The value for *revision*. A *nonce* is of letters and digits only."""
    text = b'{"nonce":"%s",' % nonce.encode("ascii") + revision.to_json()[1:]
    return text if len(text) <= _PLAIN else zlib.compress(text)


def decode(value: bytes) -> Revision:
    """The revision in *value*. Raises `StorageError` if there is none."""
    return revision_from_json(value if value[:1] == b"{" else _inflated(value))


def _inflated(value: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(value, _LONGEST)
    except zlib.error as error:
        raise StorageError(f"what is kept is neither JSON nor compressed: {error}") from error
    if inflating.unconsumed_tail or not inflating.eof:
        raise StorageError(f"what is kept is cut off, or longer than {_LONGEST} bytes")
    return text
