"""What there is to show, and where: the figures, how they came, and how large the screen is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.cli.top.live import Live, Rule


@dataclass(frozen=True, slots=True)
class Scene:
    """*live* is the latest answer, None before the first; *earlier* one of some seconds ago.

    *trouble* says why there is none newer, "" if there is nothing amiss. *url* is who is asked.
    """

    live: Live | None
    url: str
    earlier: Live | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """*width* columns and *height* rows; *height* None: as many as it takes."""

    width: int
    height: int | None = None
    is_ascii: bool = False

    @property
    def ellipsis(self) -> str:
        return "..." if self.is_ascii else "…"


def sources_lately(rule: Rule, earlier: Live | None) -> dict[str, float]:
    """The parts of its decisions that each source has made, since *earlier* if that is known."""
    before = (
        next((one for one in earlier.rules if one.rule_id == rule.rule_id), None)
        if (earlier is not None)
        else None
    )
    counts = dict(rule.sources)
    if before is not None:
        lately = {name: count - before.sources.get(name, 0.0) for name, count in counts.items()}
        # Fewer than before: the service has begun anew.
        if all(count >= 0 for count in lately.values()):
            counts = lately
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count > 0 and total}
