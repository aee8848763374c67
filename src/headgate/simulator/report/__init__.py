"""Reports on one replay, or on two of the same traffic, before a change and after it.

Read `findings` first: all that a report says. `text` lays it out for terminals and needs rich
(extra `cli`); `html` and `plots` need matplotlib (extra `plots`), which is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.errors import not_installed
from headgate.simulator.report.text import text_report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headgate.simulator.results import Outcome

__all__ = ["html_report", "text_report", "write_pngs"]


def html_report(outcomes: Sequence[Outcome], *, title: str) -> str:
    """Return the report as an HTML page: see `html.html_report`."""
    page: str = _needing_plots("html").html_report(outcomes, title=title)
    return page


def write_pngs(outcomes: Sequence[Outcome], directory: str | Path) -> list[Path]:
    """Write the plots as PNG files: see `plots.write_pngs`."""
    paths: list[Path] = _needing_plots("plots").write_pngs(outcomes, directory)
    return paths


def _needing_plots(module: str) -> Any:
    """Import a module that needs matplotlib. Raises `MissingPackageError` without it."""
    try:
        import_module("matplotlib")
        return import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        raise not_installed("plots", error) from error
