"""Message classes from the `.proto` files in `protos/`, in a pool of their own.

The files define the part of the messages of Envoy and gRPC that we use. In a private pool they
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

import re
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_GOOGLE: Final = "google/protobuf/"
_TOKEN: Final = re.compile(r'"[^"]*"|[\w.]+|[{}=;<>,]')
_COMMENT: Final = re.compile(r"//.*")


def text_of(read: str | bytes) -> str:
    """A string field as text, whether it was read as such or as bytes; never raises."""
    return read if isinstance(read, str) else read.decode("utf-8", "surrogateescape")


def load(name: str, *, strings_as_bytes: bool = False) -> dict[str, type[Any]]:
    """The message classes of the file *name* and of its imports, by full name.

    With *strings_as_bytes* every string is bytes, and a map a list of its entries, because keys of
    a map cannot be bytes.
    """
    pool = descriptor_pool.DescriptorPool()
    found: dict[str, type[Any]] = {}
    for file in _with_imports(name):
        if strings_as_bytes and not file.name.startswith(_GOOGLE):
            for message in file.message_type:
                _use_bytes(message)
        pool.AddSerializedFile(file.SerializeToString())
        pending = list(pool.FindFileByName(file.name).message_types_by_name.values())
        while pending:
            described = pending.pop()
            found[described.full_name] = message_factory.GetMessageClass(described)
            pending += described.nested_types
    return found


def _with_imports(name: str) -> list[FileDescriptorProto]:
    """The file *name* after all that it imports."""
    if name.startswith(_GOOGLE):
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        return [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)]
    text = files("headgate.service.grpc").joinpath("protos", name).read_text()
    file = parse(name, text)
    known = {one.name: one for other in file.dependency for one in _with_imports(other)}
    return [*known.values(), file]


def _use_bytes(message: DescriptorProto) -> None:
    message.options.ClearField("map_entry")
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES
    for inner in message.nested_type:
        _use_bytes(inner)


def parse(name: str, text: str) -> FileDescriptorProto:
    """Parse a file of proto3: messages, enumerations, choices, maps and imports, no options."""
    file = FileDescriptorProto(name=name, syntax="proto3")
    tokens = iter(_TOKEN.findall(_COMMENT.sub("", text)))
    for token in tokens:
        match token:
            case "package":
                file.package = next(tokens)
            case "import":
                file.dependency.append(next(tokens).strip('"'))
            case "message":
                _message(file.message_type.add(name=next(tokens)), tokens)
            case "enum":
                _enum(file.enum_type.add(name=next(tokens)), tokens)
    return file


def _message(message: DescriptorProto, tokens: Iterator[str], one_of: int | None = None) -> None:
    """Read the body of *message*, or of its choice number *one_of*."""
    _expect(tokens, "{")
    for token in tokens:
        match token:
            case "}":
                return
            case "message":
                _message(message.nested_type.add(name=next(tokens)), tokens)
            case "enum":
                _enum(message.enum_type.add(name=next(tokens)), tokens)
            case "oneof":
                message.oneof_decl.add(name=next(tokens))
                _message(message, tokens, len(message.oneof_decl) - 1)
            case "repeated":
                _add_field(
                    message, next(tokens), tokens
                ).label = FieldDescriptorProto.LABEL_REPEATED
            case "map":
                _add_map(message, tokens)
            case _:
                field = _add_field(message, token, tokens)
                if one_of is not None:
                    field.oneof_index = one_of


def _add_field(message: DescriptorProto, kind: str, tokens: Iterator[str]) -> FieldDescriptorProto:
    """Read the name and the number of a field of type *kind*."""
    field = message.field.add(name=next(tokens), label=FieldDescriptorProto.LABEL_OPTIONAL)
    _expect(tokens, "=")
    field.number = int(next(tokens))
    _expect(tokens, ";")
    scalar = f"TYPE_{kind.upper()}"
    if scalar in FieldDescriptorProto.Type.keys():  # noqa: SIM118 (no mapping)
        field.type = FieldDescriptorProto.Type.Value(scalar)
    else:
        field.type_name = kind
    return field


def _add_map(message: DescriptorProto, tokens: Iterator[str]) -> None:
    """Read a map: a repeated field of entries with a key and a value."""
    _, key, _, value, _ = [next(tokens) for _ in range(5)]  # < key , value >
    field = _add_field(message, "", tokens)
    field.label = FieldDescriptorProto.LABEL_REPEATED
    field.type_name = f"{field.name.title().replace('_', '')}Entry"
    entry = message.nested_type.add(name=field.type_name)
    entry.options.map_entry = True
    _add_field(entry, key, iter(("key", "=", "1", ";")))
    _add_field(entry, value, iter(("value", "=", "2", ";")))


def _enum(enum: EnumDescriptorProto, tokens: Iterator[str]) -> None:
    _expect(tokens, "{")
    for token in tokens:
        if token == "}":  # noqa: S105 (no password)
            return
        _expect(tokens, "=")
        enum.value.add(name=token, number=int(next(tokens)))
        _expect(tokens, ";")


def _expect(tokens: Iterator[str], expected: str) -> None:
    if (found := next(tokens, "the end")) != expected:
        raise ValueError(f"{found!r} where {expected!r} was expected")
