"""A row of the table: one measured path, what was measured beside it, and its budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["us", "ms", "/s", ""]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure. *with_peers*: also the peers, not only what the rows need."""

    scale: float = 1.0
    with_peers: bool = True

    def rounds(self, full: int) -> int:
        return max(2, round(full * self.scale))

    def seconds(self, full: float) -> float:
        return full * self.scale


@dataclass(frozen=True, slots=True)
class Budget:
    """A bound of the value, or of its ratio to *of*, which was measured in the same run."""

    bound: float
    of: str | None = None
    at_least: bool = False

    def __str__(self) -> str:
        bound = f"{'>=' if self.at_least else '<='} {self.bound:g}"
        return bound if self.of is None else f"{bound} of {self.of}"


@dataclass(frozen=True, slots=True)
class Row:
    """One path. *name* is short and stable: two runs are compared by it.

    *whole* is compared in place of a value that is a difference and may be close to zero.
    """

    name: str
    path: str
    value: float
    unit: Unit
    budgets: tuple[Budget, ...]
    beside: dict[str, float] = field(default_factory=dict)
    higher_is_better: bool = False
    note: str = ""
    whole: float | None = None

    def ratio(self, budget: Budget) -> float | None:
        """What *budget* bounds; None if its peer was not measured."""
        if budget.of is None:
            return self.value
        beside = self.beside.get(budget.of)
        return None if beside is None else self.value / beside

    def is_met(self, budget: Budget) -> bool | None:
        ratio = self.ratio(budget)
        if ratio is None:
            return None
        return ratio >= budget.bound if budget.at_least else ratio <= budget.bound

    @property
    def verdict(self) -> str:
        """`missed` if one budget is missed; `met` if all of those that were measured are met."""
        if not self.budgets:
            return "no budget"
        found = {self.is_met(budget) for budget in self.budgets}
        if False in found:
            return "missed"
        return "met" if True in found else "not measured"

    def cells(self) -> list[str]:
        beside = "; ".join(f"{name} {figure(value)}" for name, value in self.beside.items())
        ratios = [self.ratio(budget) for budget in self.budgets if budget.of is not None]
        return [
            self.name,
            self.path,
            f"{figure(self.value)} {self.unit}".rstrip(),
            "; ".join(part for part in (beside, self.note) if part),
            "; ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            "; ".join(map(str, self.budgets)),
            self.verdict,
        ]

    def record(self) -> dict[str, object]:
        return {
            "name": self.name,
            "path": self.path,
            "value": round(self.value, 4),
            "compared": round(self.value if self.whole is None else self.whole, 4),
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "beside": {name: round(value, 4) for name, value in self.beside.items()},
            "note": self.note,
            "budgets": [
                {"budget": str(budget), "value": self.ratio(budget), "met": self.is_met(budget)}
                for budget in self.budgets
            ],
        }


HEADINGS = ["row", "path", "value", "beside it", "ratio", "budget", "verdict"]


def figure(value: float) -> str:
    """Three digits or so."""
    if abs(value) >= 1000:
        return f"{value / 1000:.3g}k"
    return f"{value:.3g}"


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
