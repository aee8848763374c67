"""Envoy's messages as its own package has them, which are not typed, and as we define them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headgate.service.grpc.protobuf import definitions, message_class

base: Any = import_module("envoy.config.core.v3.base_pb2")
descriptors: Any = import_module("envoy.extensions.common.ratelimit.v3.ratelimit_pb2")
service: Any = import_module("envoy.service.ratelimit.v3.rls_pb2")
units: Any = import_module("envoy.type.v3.ratelimit_unit_pb2")


def defined_messages(*prefixes: str) -> dict[str, type[Any]]:
    """The classes of our messages whose full names begin with one of *prefixes*, by full name."""
    found: dict[str, type[Any]] = {}
    pending = [(file.package, one) for file in definitions().file for one in file.message_type]
    while pending:
        parent, message = pending.pop()
        name = f"{parent}.{message.name}"
        if name.startswith(prefixes):
            found[name] = message_class(name)
        pending += [(name, inner) for inner in message.nested_type]
    return found
