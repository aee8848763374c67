"""The cookies of a request, read as browsers and servers do rather than as the grammar says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.rules.request import Request


def cookies_of(request: Request) -> dict[str, str]:
    """Names and values in all Cookie lines; of one name the first.

    Blanks around both and one pair of quotes around the value do not count. What has no `=` or no
    name is passed over; nothing spoils the rest. Names are compared as they are.
    """
    found: dict[str, str] = {}
    for line in request.header_lines("cookie"):
        for pair in line.split(";"):
            name, equals, value = pair.partition("=")
            name = name.strip()
            if equals and name:
                found.setdefault(name, _unquoted(value.strip()))
    return found


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value
