"""What there is to show, and where: the figures, how they came, and how large the screen is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """The parts of its decisions that each source has made lately; of a service that does not say,
    since *earlier* if that is known."""
    counts = _since(rule, earlier) if rule.sources_lately is None else rule.sources_lately
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count > 0 and total}


def _since(rule: Rule, earlier: Live | None) -> Mapping[str, float]:
    rules = () if earlier is None else earlier.rules
    before = next((one for one in rules if one.rule_id == rule.rule_id), None)
    if before is None:
        return rule.sources
    lately = {name: n - before.sources.get(name, 0.0) for name, n in rule.sources.items()}
    # Fewer than before: the service has begun anew.
    return lately if all(count >= 0 for count in lately.values()) else rule.sources
