"""What to say when the package of a framework or a client is not installed."""

from __future__ import annotations

from headgate.errors import HeadgateError


class MissingPackageError(HeadgateError, ModuleNotFoundError):
    """A part of Headgate needs a package that is not installed; the message says how to get it."""


def not_installed(extra: str, error: ModuleNotFoundError) -> MissingPackageError:
    """The error to raise for *error*, which says which *extra* of Headgate to install."""
    return MissingPackageError(
        f"this part of Headgate needs the package {error.name!r}: pip install 'headgate[{extra}]'",
        name=error.name,
    )
