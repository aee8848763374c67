"""Strings that are not UTF-8: Envoy passes on what a client sends.

A `string` of Protocol Buffers must be UTF-8, but C++ writes any bytes, and strict readers reject
the whole message. With a limit that fails open, one such byte would evade the limit. So a message
that cannot be decoded is decoded again with `bytes` in place of `string`, which have the same
encoding, and bytes that are not UTF-8 become lone surrogates (PEP 383): different texts stay
different, and rules and counters can use them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.protos import BYTES, STRING

if TYPE_CHECKING:
    from headgate.protos import Field, File, Message


def text_of(octets: bytes) -> str:
    """Decode *octets*; never raises."""
    return octets.decode("utf-8", "surrogateescape")


def octets_of(text: str) -> bytes:
    """The bytes from which `text_of` made *text*."""
    return text.encode("utf-8", "surrogateescape")


def in_octets(file: File) -> File:
    """*file* with `bytes` in place of `string`. A map becomes a list of its entries, because keys
    of a map cannot be bytes."""
    return replace(file, messages=tuple(map(_message, file.messages)))


def _message(message: Message) -> Message:
    return replace(
        message,
        fields=tuple(map(_field, message.fields)),
        messages=tuple(map(_message, message.messages)),
        entry=False,
    )


def _field(field: Field) -> Field:
    return replace(field, kind=BYTES) if field.kind == STRING else field
