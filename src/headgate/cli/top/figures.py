"""The figures of a service at `/admin/v1/live`.

The names of the fields are those of the JSON. The service may be older or newer than this command:
a missing value, or one of another type, becomes the field's default; unknown fields are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from headgate.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
PATH: Final = "/admin/v1/live"
_LARGEST: Final = 1e18


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Decisions by outcome: a count, or a rate per second."""

    allowed: float = 0.0
    denied: float = 0.0
    shadow_allowed: float = 0.0
    shadow_denied: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule(Outcomes):
    """A rule with its totals, or the totals of a removed one (*mode* is empty)."""

    rule_id: str = ""
    mode: str = ""
    candidate_of: str = ""
    per_second: Outcomes = Outcomes()
    sources: dict[str, float] = field(default_factory=dict)
    sources_per_second: dict[str, float] = field(default_factory=dict)

    @property
    def allowed_rate(self) -> float:
        return self.per_second.allowed + self.per_second.shadow_allowed

    @property
    def denied_rate(self) -> float:
        return self.per_second.denied

    @property
    def shadow_rate(self) -> float:
        """The rate of requests that the rule would deny if it were enforced."""
        return self.per_second.shadow_denied

    @property
    def traffic(self) -> float:
        return self.allowed_rate + self.denied_rate + self.shadow_rate

    @property
    def denied_share(self) -> float | None:
        """The share that the rule denies, or in shadow would deny; None without traffic."""
        return (self.denied_rate + self.shadow_rate) / self.traffic if self.traffic else None

    def source_shares(self) -> dict[str, float]:
        """The recent share of each source of decisions."""
        total = sum(self.sources_per_second.values())
        counts = self.sources_per_second.items()
        return {name: count / total for name, count in counts if count > 0}


@dataclass(frozen=True, slots=True)
class Key:
    """A counter with much traffic."""

    rule_id: str = ""
    key: str = ""
    per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """The decisions of a shadow rule.

    *newly_denied* and *newly_allowed* compare it with the rule that it is to replace, if there is
    one. *denied_anyway* counts those of its denials that an enforced rule denied. *since* is in
    seconds since the epoch.
    """

    rule_id: str = ""
    candidate_of: str = ""
    since: float | None = None
    requests: float = 0.0
    would_deny: float = 0.0
    denied_anyway: float = 0.0
    keys: float = 0.0
    keys_exact: bool = True
    newly_denied: float | None = None
    newly_allowed: float | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of requests."""

    gate: str = ""
    waiting: float = 0.0
    in_flight: float = 0.0
    slots: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The state of the policy."""

    revision: float | None = None
    rules: float = 0.0
    trouble: str = ""
    stale: bool = False
    current: bool = True
    problems: float = 0.0

    def troubles(self) -> list[str]:
        """Messages about a policy that is not the newest."""
        found = []
        if self.trouble:
            found.append(self.trouble)
        elif self.stale:
            found.append("The active policy is stale.")
        elif not self.current:
            found.append("The active policy may not be the newest.")
        if self.problems:
            count = counted(self.problems, "problem")
            found.append(f"A newer policy has {count} and is not active.")
        return found


@dataclass(frozen=True, slots=True)
class Store:
    """The state of the store."""

    url: str = ""
    state: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the time of a decision, in seconds."""

    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """All figures. *at* and *began* are in seconds since the epoch."""

    at: float = 0.0
    began: float = 0.0
    version: str = ""
    workers: float = 1.0
    factor: float = 1.0
    policy: Policy = Policy()
    store: Store = Store()
    requests: Outcomes = Outcomes()
    latency: Latency = Latency()
    rules: tuple[Rule, ...] = ()
    busiest_keys: tuple[Key, ...] = ()
    refused_keys: tuple[Key, ...] = ()
    queues: tuple[Queue, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.store.state in ("ok", "") and not self.troubles()

    def troubles(self) -> list[str]:
        """Messages about store and policy."""
        return [*self.store.trouble, *self.policy.troubles()]


def read_live(data: Mapping[str, Any]) -> Live:
    """Read the JSON object *data*."""
    return _read_object(Live, data)


def _read_object(kind: Callable[..., _T], data: Mapping[str, Any]) -> _T:
    values = {
        name: value
        for name, hint in _hints(kind).items()
        if name in data and (value := _read(hint, data[name])) is not None
    }
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}


def _read(hint: Any, found: object) -> Any:
    """*found* as a value of the type *hint*; None if it is not one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_object(hint, found) if isinstance(found, dict) else None
    if origin is tuple:
        items = (_read(arguments[0], one) for one in found) if isinstance(found, list) else ()
        return tuple(one for one in items if one is not None)
    if origin is dict:
        pairs = found.items() if isinstance(found, dict) else ()
        read = ((name, _read(arguments[1], one)) for name, one in pairs)
        return {name: one for name, one in read if one is not None}
    if float in (hint, *arguments):
        return _number(found)
    return found if isinstance(found, hint) else None


def _number(found: object) -> float | None:
    """*found* if it is a finite number; no figure here is negative."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return max(0.0, float(found)) if abs(found) < _LARGEST and isfinite(found) else None
