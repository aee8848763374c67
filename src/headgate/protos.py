"""Definitions of Protocol Buffers messages, in a pool of our own.

The messages of Envoy and of etcd are defined by others. Only what we use of them is written down
here in Headgate, as data, and kept in a pool that nobody else sees: so it never collides with
another copy of the same definitions in the process (the default pool takes each name once), and
needs no generated code. Fields that are not written down are kept when a message passes through,
and otherwise ignored, as the format promises.

    protos = define(
        File("envoy/x.proto", "envoy.x", (
            Message("Ask", (Field(1, "domain", STRING), Field(2, "hits", UINT32, many=True))),
        )),
    )
    Ask = protos["envoy.x.Ask"]
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

DOUBLE: Final = "double"
INT64: Final = "int64"
UINT64: Final = "uint64"
INT32: Final = "int32"
UINT32: Final = "uint32"
BOOL: Final = "bool"
STRING: Final = "string"
BYTES: Final = "bytes"
_NUMBERS: Final[Mapping[str, int]] = {
    DOUBLE: 1,
    INT64: 3,
    UINT64: 4,
    INT32: 5,
    BOOL: 8,
    STRING: 9,
    BYTES: 12,
    UINT32: 13,
}
_MESSAGE: Final = 11
_ENUM: Final = 14
_ONE: Final = 1
_MANY: Final = 3


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. *kind* is one of the words above, or the full name of a message or,
    with `is_enum`, of an enumeration. *one_of* names the choice that it is part of."""

    number: int
    name: str
    kind: str
    many: bool = False
    is_enum: bool = False
    one_of: str | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    """An enumeration: names and numbers, that of 0 first."""

    name: str
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its fields, and with the messages and enumerations within it.

    *entry*: it is an entry of a map, its fields being `key` and `value`.
    """

    name: str
    fields: tuple[Field, ...] = ()
    messages: tuple[Message, ...] = ()
    enums: tuple[Enum, ...] = ()
    entry: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file of definitions, and the names of those that it needs."""

    name: str
    package: str
    messages: tuple[Message, ...] = ()
    enums: tuple[Enum, ...] = ()
    needs: tuple[str, ...] = ()


def define(*files: File | str) -> dict[str, type[Any]]:
    """The message classes of *files*, by full name. A file comes after those that it needs.

    A name such as `google/protobuf/struct.proto` is a file of the protobuf package. Raises
    `OptionError` if that is not installed.
    """
    try:
        from google.protobuf import descriptor_pool, message_factory
    except ImportError as error:
        raise OptionError(
            f"the messages of Envoy and etcd need the package {error.name!r}:"
            " pip install 'headgate[service]'"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        if isinstance(file, str):
            module = import_module(file.removesuffix(".proto").replace("/", ".") + "_pb2")
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        else:
            pool.AddSerializedFile(_described(file).SerializeToString())
    found: dict[str, type[Any]] = {}
    for file in files:
        name = file if isinstance(file, str) else file.name
        pending = list(pool.FindFileByName(name).message_types_by_name.values())
        while pending:
            described = pending.pop()
            found[described.full_name] = message_factory.GetMessageClass(described)
            pending += described.nested_types_by_name.values()
    return found


def _described(file: File) -> Any:
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto(
        name=file.name, package=file.package, syntax="proto3", dependency=file.needs
    )
    for message in file.messages:
        _describe(proto.message_type.add(), message)
    for enum in file.enums:
        _describe_enum(proto.enum_type.add(), enum)
    return proto


def _describe(proto: Any, message: Message) -> None:
    proto.name = message.name
    proto.options.map_entry = message.entry
    choices: dict[str, int] = {}
    for field in message.fields:
        one = proto.field.add(name=field.name, number=field.number)
        one.label = _MANY if field.many else _ONE
        if field.kind in _NUMBERS:
            one.type = _NUMBERS[field.kind]
        else:
            one.type = _ENUM if field.is_enum else _MESSAGE
            one.type_name = f".{field.kind}"
        if field.one_of is not None:
            if field.one_of not in choices:
                choices[field.one_of] = len(choices)
                proto.oneof_decl.add(name=field.one_of)
            one.oneof_index = choices[field.one_of]
    for inner in message.messages:
        _describe(proto.nested_type.add(), inner)
    for enum in message.enums:
        _describe_enum(proto.enum_type.add(), enum)


def _describe_enum(proto: Any, enum: Enum) -> None:
    proto.name = enum.name
    for name, number in enum.values.items():
        proto.value.add(name=name, number=number)


DURATION: Final = File(
    "google/protobuf/duration.proto",
    "google.protobuf",
    (Message("Duration", (Field(1, "seconds", INT64), Field(2, "nanos", INT32))),),
)
WRAPPERS: Final = File(
    "google/protobuf/wrappers.proto",
    "google.protobuf",
    (
        Message("UInt64Value", (Field(1, "value", UINT64),)),
        Message("UInt32Value", (Field(1, "value", UINT32),)),
    ),
)
