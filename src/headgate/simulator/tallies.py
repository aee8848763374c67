"""Who asked and who was denied: exactly for so many keys, and beyond that who was denied most.

While there are at most `MOST_KEYS` keys all of them are known. When there are more, how many there
are is estimated (see `distinct`), and only those that were denied most stay known; a key that comes
back starts at nothing, so what is told of it then is the least that it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.model import Rule


# What came of a replay: of every request, by rule, by key and over time.
#
# Times are nanoseconds since the epoch, as the trace tells them. A series has one number per step
# of `step_ns`, from `began_ns` on. Keys are those of counters: secrets in them are hashed, unless
# they were asked for in the clear.


MOST_STEPS: Final = 600
"""How many numbers a series has at most."""
MOST_TOLD: Final = 20
"""How many keys a rule tells of at most."""


@dataclass(frozen=True, slots=True)
class KeyResult:
    """What became of a key's requests under a rule."""

    key: str
    requests: int
    denied: int


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule would have done; a rule in shadow denies nothing, and tells what it would deny.

    `keys` and `keys_denied` are how many callers the rule told apart, and how many of them it
    denied something; `top_denied` are those that it denied most.
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

    def __post_init__(self) -> None:
        if self.allowed + self.denied != self.requests:
            raise ValueError(
                f"rule {self.rule_id}: {self.allowed} allowed and {self.denied} denied are not "
                f"{self.requests} requests"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy would have made of a trace.

    `retries` are the requests that were made because others had been refused; they are among
    `requests`. `skipped` are the lines of the trace that were not understood. `delayed` requests
    are among the allowed ones: they had to wait for their turn in a queue. `notes` say what was not
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

    def __post_init__(self) -> None:
        if self.allowed + self.denied != self.requests:
            raise ValueError(
                f"{self.allowed} allowed and {self.denied} denied are not {self.requests} requests"
            )
        if len(self.allowed_series) > MOST_STEPS:
            raise ValueError(f"a series has at most {MOST_STEPS} steps")


# How many different keys there were, in bounded memory: a HyperLogLog sketch.
#
# Each key is hashed; the first bits choose a register, which keeps the longest run of zeros that
# the rest of a hash began with. Many different keys make long runs likely. With 2^14 registers the
# estimate is within 2.5% in 99 cases of 100. The hash is the same everywhere, so the estimate is
# too.


_BITS: Final = 14
_REGISTERS: Final = 1 << _BITS
_REST: Final = 64 - _BITS
_FEW: Final = 3.5 * _REGISTERS
_ALPHA: Final = 0.7213 / (1 + 1.079 / _REGISTERS)


class Distinct:
    """An estimate of how many different keys were added."""

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest = bytearray(_REGISTERS)

    def add(self, key: str) -> None:
        """Count *key*, if it was not counted before."""
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest, "big")
        register, rest = value >> _REST, value & ((1 << _REST) - 1)
        run = _REST - rest.bit_length() + 1
        self._longest[register] = max(self._longest[register], run)

    def __len__(self) -> int:
        """The estimate: while few, by how many registers are still empty, which is more exact."""
        empty = self._longest.count(0)
        few = _REGISTERS * math.log(_REGISTERS / empty) if empty else math.inf
        if few <= _FEW:
            return round(few)
        return round(_ALPHA * _REGISTERS**2 / sum(2.0**-run for run in self._longest))


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


# Counts over time, in steps that grow with the time that has gone by.
#
# How long a trace is shows when it is over. So the steps are short at first, and whenever there
# would be too many of them, several become one. What is counted is counted in cells, one for each
# line of a plot; at the end of a step all cells are put down and start at nothing.


LADDER: Final = (
    10 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
)
"""The steps that people like; each goes into the next. Beyond the last they double."""

Cell = list[int]
"""What was allowed and what was denied in this step, and in all before it."""


class Steps:
    """The steps of a replay that begins at *began_ns*; of *step_ns* at least, if that is given."""

    __slots__ = ("_cells", "_place", "_put_down", "began_ns", "next_ns", "step_ns")

    def __init__(self, began_ns: int, step_ns: int | None = None) -> None:
        if step_ns is not None and step_ns < MILLISECOND:
            raise OptionError(f"a step of {step_ns} ns; expected at least a millisecond")
        self.began_ns = began_ns
        self.step_ns = step_ns or LADDER[0]
        self.next_ns = began_ns + self.step_ns
        """When the next step begins: whoever sees that time calls `turn`."""
        self._place = 0
        self._cells: list[Cell] = []
        self._put_down: list[tuple[list[int], list[int]]] = []

    def cell(self) -> Cell:
        """A new cell: `[0] += 1` for what is allowed, `[1] += 1` for what is denied."""
        cell = [0, 0]
        self._cells.append(cell)
        before = [0] * self._place
        self._put_down.append((before, list(before)))
        return cell

    def turn(self, now_ns: int) -> None:
        """Begin the step that *now_ns* is in."""
        self._put_all_down()
        place = (now_ns - self.began_ns) // self.step_ns
        while place >= MOST_STEPS:
            self._coarsen()
            place = (now_ns - self.began_ns) // self.step_ns
        self._place = place
        self.next_ns = self.began_ns + (place + 1) * self.step_ns

    def lines(self, cell: Cell) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What was allowed and what was denied in each step so far, the one that goes on too."""
        self._put_all_down()
        index = next(place for place, one in enumerate(self._cells) if one is cell)
        length = self._place + 1
        allowed, denied = self._put_down[index]
        return _filled(allowed, length), _filled(denied, length)

    def _put_all_down(self) -> None:
        length = self._place + 1
        for cell, (allowed, denied) in zip(self._cells, self._put_down, strict=True):
            for count, line in zip(cell, (allowed, denied), strict=True):
                if count:
                    line.extend([0] * (length - len(line)))
                    line[self._place] += count
            cell[:] = (0, 0)

    def _coarsen(self) -> None:
        longer = next((one for one in LADDER if one > self.step_ns and not one % self.step_ns), 0)
        longer = longer or 2 * self.step_ns
        times = longer // self.step_ns
        for lines in self._put_down:
            for line in lines:
                line[:] = [sum(line[at : at + times]) for at in range(0, len(line), times)]
        self.step_ns = longer


def _filled(line: list[int], length: int) -> tuple[int, ...]:
    return (*line, *[0] * (length - len(line)))
