"""What the worker before this one has counted: a worker that dies takes nothing along."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.observability.merging import folded_candidates
from headgate.service.live.cells import packed_counts
from headgate.service.live.snapshot import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.service.live.snapshot import Series, Snapshot, State


@dataclass(frozen=True, slots=True)
class Former:
    """What to begin with. Nothing, if there was nobody."""

    began: float | None = None
    requests: tuple[int, int] = (0, 0)
    cells: bytes = field(default_factory=lambda: packed_counts({}))
    """Packed, as they are told again and again."""
    calls: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    series: Series | None = None
    candidates: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Former:
        """What *snapshot* says. Raises `SnapshotError` for one of another version."""
        try:
            state = snapshot.state()
            refused, admitted = state["requests"]
            return cls(
                began=state["began"],
                requests=(refused, admitted),
                cells=packed_counts(
                    {(rule, said, by): count for rule, said, by, count in state["cells"]}
                ),
                calls=state["store"]["calls"],
                errors=state["store"]["errors"],
                series=snapshot.series(),
                candidates=(folded_candidates(snapshot.candidates()),),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"it is not as expected: {error!r}") from error

    def added_to(self, state: State) -> State:
        """*state* with what was counted before it began, but for `cells`."""
        if self.began is None:
            return state
        store = state["store"]
        return {
            **state,
            "began": min(self.began, state["began"]),
            "requests": [a + b for a, b in zip(self.requests, state["requests"], strict=True)],
            "store": {
                **store,
                "calls": self.calls + store["calls"],
                "errors": _sums((self.errors, store["errors"])),
            },
        }


def _sums(all_of: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in all_of:
        for name, count in one.items():
            found[name] = found.get(name, 0) + count
    return found
