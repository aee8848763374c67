"""The package that draws is an extra: asked for when something is drawn, not before."""

from __future__ import annotations

from importlib import import_module

from headgate.enforcement.missing import not_installed


def needing_plots() -> None:
    """Go on if matplotlib is there; else raise `MissingPackageError`, which says how to get it."""
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise not_installed("plots", error) from error
