"""The Lua scripts, put together from their files.

There is one file per operation. A line `--@ name name` in it stands for the files of those names,
so that what several operations share is written once and each script is still one text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

_INCLUDED: Final = re.compile(r"^ *--@ ([a-z ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest by which the server knows it."""

    name: str
    text: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """The script of the operation *name*."""
    text = _text(name).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _text(name: str) -> str:
    source = files("headgate.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")
    return _INCLUDED.sub(lambda found: "\n".join(map(_text, found[1].split())), source)
