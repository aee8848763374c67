"""Secrets: how long they are, and those that are kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

_MOST: Final = 4_096
SHORTEST: Final = 16
"""How many characters a token or a secret has at least."""


def secret_in(path: str, spot: Spot) -> bytes | None:
    """What the file at *path* says, without the line's end; None, noted at *spot*, if nothing."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST + 1)
    except OSError as error:
        spot.wrong(f"{path}: cannot be read: {error.strerror or error}")
        return None
    found = content.removesuffix(b"\n").removesuffix(b"\r")
    if not found.strip():
        spot.wrong(f"{path}: there is nothing in it; expected a secret")
        return None
    if len(found) > _MOST:
        spot.wrong(f"{path}: more than {_MOST} bytes; expected a secret")
        return None
    return found


def too_short(token: bytes) -> str | None:
    """What is wrong with *token* (or a secret), if it can be guessed."""
    length = len(token.strip())
    if length >= SHORTEST:
        return None
    return f"{length} characters can be guessed; expected at least {SHORTEST}"
