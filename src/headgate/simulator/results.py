"""The outcome of a replay: by rule, by key and over time, in bounded memory.

Times are nanoseconds since the epoch, as in the trace. A series has one number per step of
`step_ns`, from `began_ns` on. Keys are those of counters; secrets in them are hashed unless they
were requested in the clear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.observability.sketches import Distinct, hash_of
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.model import Rule

MAX_STEPS: Final = 600
"""The numbers in a series, at most."""
MAX_REPORTED: Final = 20
"""The keys that a rule reports, at most."""
MAX_KEYS: Final = 200_000
"""The keys of a rule that are counted one by one."""
_HASHES: Final = 16_384
"""The hashes that an estimate is based on: within 2.5% in 99 cases of 100."""


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The requests of a key under a rule."""

    key: str
    requests: int
    denied: int


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The decisions of a rule; a shadow rule denies nothing, and reports what it would deny.

    `keys` and `keys_denied` are the number of keys, and of those with a denied request;
    `top_denied` are the keys with the most.
    """

    rule_id: str
    mode: str
    limit: str
    requests: int
    allowed: int
    denied: int
    keys: int
    keys_denied: int
    first_denied_ns: int | None
    top_denied: tuple[KeyResult, ...]
    allowed_series: tuple[int, ...]
    denied_series: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decisions of a policy on a trace.

    `requests` include `retries`, which repeat denied ones; `allowed` includes the `delayed`, which
    waited in a queue. `skipped` are the invalid lines of the trace. `notes` say what was not
    simulated, or not exactly.
    """

    policy_name: str
    revision: int
    began_ns: int
    ended_ns: int
    step_ns: int
    requests: int
    allowed: int
    denied: int
    callers: int
    callers_denied: int
    allowed_series: tuple[int, ...]
    denied_series: tuple[int, ...]
    rules: tuple[RuleResult, ...]
    retries: int
    skipped: int
    took_s: float
    delayed: int = 0
    notes: tuple[str, ...] = ()


Count = list[int]
"""The number of allowed and of denied requests."""


class KeyCounts:
    """The counts of the keys of a rule, or of the callers of a policy.

    While there are at most *most* keys, all are counted. Beyond that the number of keys is an
    estimate, and only the keys that were denied most stay; one that comes back starts at 0, so its
    figures are lower bounds. *on_forget* is called then: counts must be fetched again.
    """

    __slots__ = ("_all", "_counts", "_denied", "_most", "_on_forget")

    def __init__(self, on_forget: Callable[[], None], *, most: int = MAX_KEYS) -> None:
        self._on_forget = on_forget
        self._most = most
        self._counts: dict[str, Count] = {}
        self._all: Distinct | None = None
        self._denied = Distinct(_HASHES)

    @property
    def is_exact(self) -> bool:
        """True if all keys were counted one by one."""
        return self._all is None

    def count_of(self, key: str) -> Count:
        """Return the count of *key*, for the caller to increase."""
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= self._most:
                self._forget()
            count = self._counts[key] = [0, 0]
            if self._all is not None:
                self._all.add(hash_of(key))
        return count

    def totals(self) -> tuple[int, int]:
        """Return the number of keys, and of those with a denied request."""
        if self._all is None:
            return len(self._counts), sum(1 for _, denied in self._counts.values() if denied)
        self._record_denied()
        return self._all.count, self._denied.count

    def most_denied(self) -> tuple[KeyResult, ...]:
        """Return the keys with the most denied requests."""
        found = [(denied, -allowed, key) for key, (allowed, denied) in self._counts.items()]
        top = nlargest(MAX_REPORTED, [one for one in found if one[0]])
        return tuple([KeyResult(key, denied - allowed, denied) for denied, allowed, key in top])

    def _forget(self) -> None:
        """Keep the half of the keys that was denied most, of those that were denied at all."""
        if self._all is None:
            self._all = Distinct(_HASHES)
            for key in self._counts:
                self._all.add(hash_of(key))
        self._record_denied()
        denied = [item for item in self._counts.items() if item[1][1]]
        self._counts = dict(nlargest(self._most // 2, denied, key=lambda item: item[1][1]))
        self._on_forget()

    def _record_denied(self) -> None:
        for key, (_, denied) in self._counts.items():
            if denied:
                self._denied.add(hash_of(key))


class RuleCounts:
    """The counts of a rule so far."""

    __slots__ = ("_rule", "_series", "cell", "first_denied_ns", "keys")

    def __init__(self, rule: Rule, series: TimeSeries, keys: KeyCounts) -> None:
        self._rule = rule
        self._series = series
        self.keys = keys
        self.cell = series.cell()
        self.first_denied_ns: int | None = None

    def count(self, key: str, now_ns: int, *, is_denied: bool) -> None:
        """Count a decision."""
        self.cell[is_denied] += 1
        self.keys.count_of(key)[is_denied] += 1
        if is_denied and self.first_denied_ns is None:
            self.first_denied_ns = now_ns

    def result(self, shown: Callable[[str], str]) -> RuleResult:
        """Return the result of the rule, with its keys as *shown* makes them."""
        allowed, denied = self._series.lines(self.cell)
        keys, keys_denied = self.keys.totals()
        return RuleResult(
            rule_id=self._rule.id,
            mode=self._rule.mode,
            limit=limit_text(self._rule),
            requests=sum(allowed) + sum(denied),
            allowed=sum(allowed),
            denied=sum(denied),
            keys=keys,
            keys_denied=keys_denied,
            first_denied_ns=self.first_denied_ns,
            top_denied=tuple([replace(one, key=shown(one.key)) for one in self.keys.most_denied()]),
            allowed_series=allowed,
            denied_series=denied,
        )


def limit_text(rule: Rule) -> str:
    """Return the limits of *rule* in the text notation; by tier, where they differ."""
    if rule.fair is not None:
        return "fair queue"
    texts = {tier: "; ".join(map(str, limits)) for tier, limits in rule.limits.items()}
    if set(texts) == {None}:
        return texts[None]
    return ", ".join(f"{tier or 'others'}: {text or 'none'}" for tier, text in texts.items())


LADDER: Final = (
    *(10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND, 500 * MILLISECOND),
    *(SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
    *(MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE),
    *(HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY),
)
"""Steps of a series; each divides the next. Beyond the last they double."""


class TimeSeries:
    """Counts over time from *began_ns* on, in steps of at least *step_ns*.

    The length of a trace is known only at its end. So steps are short at first, and are joined
    when there are too many. A request is counted in cells, one for each line of a plot; at the end
    of a step each cell is added to its line and set to 0.
    """

    __slots__ = ("_cells", "_lines", "_place", "began_ns", "next_ns", "step_ns")

    def __init__(self, began_ns: int, step_ns: int | None = None) -> None:
        if step_ns is not None and step_ns < MILLISECOND:
            raise OptionError(f"a step of {step_ns} ns; expected at least a millisecond")
        self.began_ns = began_ns
        self.step_ns = step_ns or LADDER[0]
        self.next_ns = began_ns + self.step_ns
        """The begin of the next step: call `advance` when it has come."""
        self._place = 0
        self._cells: list[Count] = []
        self._lines: list[tuple[list[int], list[int]]] = []

    def cell(self) -> Count:
        """Return a new cell, for the caller to increase."""
        cell = [0, 0]
        self._cells.append(cell)
        self._lines.append(([0] * self._place, [0] * self._place))
        return cell

    def advance(self, now_ns: int) -> None:
        """Begin the step that *now_ns* is in."""
        self._flush()
        place = (now_ns - self.began_ns) // self.step_ns
        while place >= MAX_STEPS:
            self._coarsen()
            place = (now_ns - self.began_ns) // self.step_ns
        self._place = place
        self.next_ns = self.began_ns + (place + 1) * self.step_ns

    def lines(self, cell: Count) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the allowed and the denied of each step so far, the current one included."""
        self._flush()
        index = next(place for place, one in enumerate(self._cells) if one is cell)
        allowed, denied = [
            (*line, *[0] * (self._place + 1 - len(line))) for line in self._lines[index]
        ]
        return allowed, denied

    def _flush(self) -> None:
        length = self._place + 1
        for cell, lines in zip(self._cells, self._lines, strict=True):
            for count, line in zip(cell, lines, strict=True):
                if count:
                    line.extend([0] * (length - len(line)))
                    line[self._place] += count
            cell[:] = (0, 0)

    def _coarsen(self) -> None:
        longer = next((one for one in LADDER if one > self.step_ns and not one % self.step_ns), 0)
        longer = longer or 2 * self.step_ns
        times = longer // self.step_ns
        for lines in self._lines:
            for line in lines:
                line[:] = [sum(line[at : at + times]) for at in range(0, len(line), times)]
        self.step_ns = longer
