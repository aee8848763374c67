"""Texts that are no UTF-8: what a client sends, Envoy passes on as it is.

A `string` of Protocol Buffers has to be UTF-8, but C++ writes whatever it is given, and whoever
reads it by the book refuses the whole message. A limit that fails open would then let pass whoever
sends one odd byte. So where a message cannot be read it is read again by the same definitions with
`bytes` in place of `string`, which look the same on the wire, and bytes that are no UTF-8 become
lone surrogates (PEP 383): different texts stay different, and rules and counters can take them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.protos import BYTES, STRING

if TYPE_CHECKING:
    from headgate.protos import Field, File, Message


def text_of(octets: bytes) -> str:
    """What *octets* say; never raises."""
    return octets.decode("utf-8", "surrogateescape")


def octets_of(text: str) -> bytes:
    """The bytes that `text_of` made *text* of."""
    return text.encode("utf-8", "surrogateescape")


def in_octets(file: File) -> File:
    """*file* with `bytes` where it has `string`. A map becomes a list of its entries, since no key
    of a map may be bytes."""
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
