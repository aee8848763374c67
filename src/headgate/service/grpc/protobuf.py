"""Message classes from `messages.textproto`, in pools of their own.

The file defines the part of the messages of Envoy and gRPC that we use. In a private pool they
never collide with other definitions of the same messages in the process (the default pool takes
each name once), and no generated code is needed. Fields that are not defined are ignored.

Strings that are not UTF-8: Envoy passes on what a client sends. A `string` of Protocol Buffers must
be UTF-8, but C++ writes any bytes, and strict readers reject the whole message. With a limit that
fails open, one such byte would evade the limit. So a message that cannot be decoded is decoded
again with `bytes` in place of `string`, which have the same encoding, and bytes that are not UTF-8
become lone surrogates (PEP 383): different texts stay different, and rules and counters can use
them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import (
    duration_pb2,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from headgate.service.grpc.method import CallError, Code

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORTED: Final = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def text_of(read: str | bytes) -> str:
    """A string field as text, whether it was read as such or as bytes; never raises."""
    return read if isinstance(read, str) else read.decode("utf-8", "surrogateescape")


def message_class(name: str, *, strings_as_bytes: bool = False) -> type[Any]:
    """The class of the messages with the full name *name*.

    With *strings_as_bytes* every string is bytes, and a map a list of its entries, because keys of
    a map cannot be bytes.
    """
    pool = _pool(strings_as_bytes=strings_as_bytes)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def decoder(name: str) -> Callable[[bytes], Any]:
    """A function that decodes messages with the full name *name*, UTF-8 or not.

    Read their strings with `text_of`. The function raises `CallError` for any other message.
    """
    strict = message_class(name).FromString
    lenient = message_class(name, strings_as_bytes=True).FromString

    def decode(message: bytes) -> Any:
        try:
            return strict(message)
        except DecodeError:
            pass
        try:
            return lenient(message)
        except DecodeError as error:
            problem = f"the message is not a {name.rpartition('.')[2]}"
            raise CallError(Code.INVALID_ARGUMENT, problem) from error

    return decode


@cache
def definitions() -> FileDescriptorSet:
    """The definitions, as they are in the file."""
    text = files("headgate.service.grpc").joinpath("messages.textproto").read_text("utf-8")
    return text_format.Parse(text, FileDescriptorSet())


@cache
def _pool(*, strings_as_bytes: bool) -> DescriptorPool:
    pool = DescriptorPool()
    for module in _IMPORTED:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    defined = FileDescriptorSet()
    defined.CopyFrom(definitions())
    for file in defined.file:
        for message in file.message_type if strings_as_bytes else ():
            _use_bytes(message)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _use_bytes(message: DescriptorProto) -> None:
    message.options.ClearField("map_entry")
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES
    for inner in message.nested_type:
        _use_bytes(inner)
