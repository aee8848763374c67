"""What is done to the headers of a request before anything else looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json


def removed(name: str) -> Json:
    """The header *name* is taken away."""
    return {"remove": name}


def put(name: str, value: str) -> Json:
    """The header *name* becomes *value*, which may be a format; nothing is done if that turns out
    empty."""
    action = "OVERWRITE_IF_EXISTS_OR_ADD"
    return {"append": {"header": {"key": name, "value": value}, "append_action": action}}
