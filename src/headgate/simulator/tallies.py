"""Who asked and who was denied: exactly for so many keys, and beyond that who was denied most.

While there are at most `MOST_KEYS` keys all of them are known. When there are more, how many there
are is estimated (see `distinct`), and only those that were denied most stay known; a key that comes
back starts at nothing, so what is told of it then is the least that it was.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from headgate.simulator.distinct import Distinct
from headgate.simulator.results import MOST_TOLD, KeyResult, RuleResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.rules.model import Rule
    from headgate.simulator.series import Cell, Steps

MOST_KEYS: Final = 200_000
"""How many keys of a rule are known at the same time."""

Count = list[int]
"""How often a key was allowed, and how often it was denied."""


class Keys:
    """The keys of a rule, or the callers of a policy; *most* are known at the same time.

    `[0] += 1` in what `count_of` gives for what is allowed, `[1] += 1` for what is denied; until
    *forgetting* is called: then counts must be asked for again.
    """

    __slots__ = ("_all", "_denied", "_forgetting", "_known", "_most")

    def __init__(self, forgetting: Callable[[], None], *, most: int = MOST_KEYS) -> None:
        self._forgetting = forgetting
        self._most = most
        self._known: dict[str, Count] = {}
        self._all: Distinct | None = None
        self._denied = Distinct()

    @property
    def is_exact(self) -> bool:
        """Whether all keys are known."""
        return self._all is None

    def count_of(self, key: str) -> Count:
        """The count of *key*."""
        count = self._known.get(key)
        if count is None:
            if len(self._known) >= self._most:
                self._forget()
            count = self._known[key] = [0, 0]
            if self._all is not None:
                self._all.add(key)
        return count

    def how_many(self) -> tuple[int, int]:
        """How many keys there were, and how many of them were denied something."""
        if self._all is None:
            return len(self._known), sum(1 for _, denied in self._known.values() if denied)
        self._note_denied()
        return len(self._all), len(self._denied)

    def most_denied(self) -> tuple[KeyResult, ...]:
        """Those that were denied most, and how often they asked."""
        found = [(denied, allowed, key) for key, (allowed, denied) in self._known.items() if denied]
        top = nlargest(MOST_TOLD, found, key=lambda one: (one[0], -one[1], one[2]))
        return tuple(KeyResult(key, allowed + denied, denied) for denied, allowed, key in top)

    def _forget(self) -> None:
        """Keep the half of the keys that was denied most, of those that were denied at all."""
        if self._all is None:
            self._all = Distinct()
            for key in self._known:
                self._all.add(key)
        self._note_denied()
        denied = [item for item in self._known.items() if item[1][1]]
        kept = nlargest(self._most // 2, denied, key=lambda item: item[1][1])
        self._known = dict(kept)
        self._forgetting()

    def _note_denied(self) -> None:
        for key, (_, denied) in self._known.items():
            if denied:
                self._denied.add(key)


class RuleTally:
    """What a rule made of the requests that it was for."""

    __slots__ = ("_steps", "cell", "first_denied_ns", "keys", "rule")

    def __init__(self, rule: Rule, steps: Steps, keys: Keys) -> None:
        self.rule = rule
        self.keys = keys
        self.cell: Cell = steps.cell()
        self.first_denied_ns: int | None = None
        self._steps = steps

    def result(self, tell: Callable[[str], str]) -> RuleResult:
        """All there is to tell; *tell* says how keys are told."""
        allowed, denied = self._steps.lines(self.cell)
        keys, keys_denied = self.keys.how_many()
        return RuleResult(
            rule_id=self.rule.id,
            mode=self.rule.mode,
            limit=limit_text(self.rule),
            requests=sum(allowed) + sum(denied),
            allowed=sum(allowed),
            denied=sum(denied),
            keys=keys,
            keys_denied=keys_denied,
            first_denied_ns=self.first_denied_ns,
            top_denied=tuple(replace(one, key=tell(one.key)) for one in self.keys.most_denied()),
            allowed_series=allowed,
            denied_series=denied,
        )


def limit_text(rule: Rule) -> str:
    """The limits of *rule*, as people write them; by tier, where they differ."""
    if rule.fair is not None:
        return "fair queue"
    texts = {tier: "; ".join(map(str, limits)) for tier, limits in rule.limits.items()}
    if set(texts) == {None}:
        return texts[None]
    return ", ".join(f"{tier or 'others'}: {text or 'none'}" for tier, text in texts.items())
