"""What the service says at `/admin/v1/live`, as far as it is shown.

A service may be older or newer than this command: what is missing, or is not what it should be,
counts as nothing, and what is not known is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

Data = Mapping[str, Any]

STORE: Final = "store"
WITHOUT_STORE: Final = frozenset({"fail_open", "fail_closed", "fallback", "local"})
"""Who decides while the store is gone."""
_NOTHING: Final[Data] = {}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, or what was counted of one that is gone (*mode* None). Rates are per second."""

    rule_id: str
    mode: str | None
    candidate_of: str | None
    totals: Mapping[str, float]
    rates: Mapping[str, float]
    sources: Mapping[str, float]
    sources_lately: Mapping[str, float] | None = None
    """How many a second each source decided lately; None if the service does not say."""
    allowed: tuple[float, ...] = ()
    """How many a second, the oldest first; so are the next two."""
    denied: tuple[float, ...] = ()
    would_deny: tuple[float, ...] = ()

    @property
    def allowed_rate(self) -> float:
        return self.rates["allowed"] + self.rates["shadow_allowed"]

    @property
    def denied_rate(self) -> float:
        return self.rates["denied"]

    @property
    def shadow_rate(self) -> float:
        """How many it would have denied."""
        return self.rates["shadow_denied"]

    @property
    def traffic(self) -> float:
        return self.allowed_rate + self.denied_rate + self.shadow_rate

    @property
    def denied_share(self) -> float | None:
        """The part that it denies, or in shadow would; None without traffic."""
        return (self.denied_rate + self.shadow_rate) / self.traffic if self.traffic else None


@dataclass(frozen=True, slots=True)
class Key:
    """A counter that much is asked of."""

    rule_id: str
    key: str
    per_second: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a rule in shadow would have done; *newly_denied* and *newly_allowed* against the rule
    that it is to replace, None if there is none. *denied_anyway* is what was denied, by whatever
    rule, of what it would have. *since* is seconds since the epoch."""

    rule_id: str
    candidate_of: str | None
    since: float | None
    requests: float
    would_deny: float
    denied_anyway: float
    keys: float
    is_exact: bool
    newly_denied: float | None
    newly_allowed: float | None


@dataclass(frozen=True, slots=True)
class Queue:
    """A gate where requests take turns."""

    gate: str
    waiting: float
    in_flight: float
    slots: float | None


@dataclass(frozen=True, slots=True)
class Live:
    """All of it. *at* and *began* are seconds since the epoch, *p50* and *p99* seconds."""

    at: float = 0.0
    began: float = 0.0
    version: str = ""
    workers: int = 1
    revision: int | None = None
    rule_count: int = 0
    policy_troubles: tuple[str, ...] = ()
    store_url: str = ""
    store_state: str = ""
    store_troubles: tuple[str, ...] = ()
    factor: float = 1.0
    allowed: float = 0
    denied: float = 0
    p50: float | None = None
    p99: float | None = None
    rules: tuple[Rule, ...] = ()
    busiest: tuple[Key, ...] = ()
    refused: tuple[Key, ...] = ()
    queues: tuple[Queue, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    raw: Data = field(default_factory=dict, repr=False, compare=False)
    """As it came."""

    @property
    def is_well(self) -> bool:
        return self.store_state in ("ok", "") and not (self.policy_troubles or self.store_troubles)


def read_live(data: Data) -> Live:
    """What *data*, the object that was answered, says."""
    policy, store = _object(data, "policy"), _object(data, "store")
    requests, latency = _object(data, "requests"), _object(data, "latency")
    series = _object(_object(data, "series"), "rules")
    revision = _number_or_none(policy, "revision")
    return Live(
        at=_number(data, "at"),
        began=_number(data, "began"),
        version=_text(data, "version"),
        workers=int(_number(data, "workers", 1)),
        revision=None if revision is None else int(revision),
        rule_count=int(_number(policy, "rules")),
        policy_troubles=tuple(_policy_troubles(policy)),
        store_url=_text(store, "url"),
        store_state=_text(store, "state"),
        store_troubles=tuple(_texts(store, "trouble")),
        factor=_number(data, "factor", 1.0),
        allowed=_number(requests, "allowed"),
        denied=_number(requests, "denied"),
        p50=_number_or_none(latency, "p50"),
        p99=_number_or_none(latency, "p99"),
        rules=tuple(_rule(one, series) for one in _objects(data, "rules")),
        busiest=tuple(map(_key, _objects(data, "busiest_keys"))),
        refused=tuple(map(_key, _objects(data, "refused_keys"))),
        queues=tuple(map(_queue, _objects(data, "queues"))),
        candidates=tuple(map(_candidate, _objects(data, "candidates"))),
        raw=data,
    )


def _policy_troubles(policy: Data) -> Iterator[str]:
    trouble = _text(policy, "trouble")
    if trouble:
        yield trouble
    elif policy.get("stale") is True:
        yield "the rules in force are stale"
    elif policy.get("current") is False:
        yield "the rules in force may not be the newest"
    problems = _number(policy, "problems")
    if problems:
        yield f"a newer policy has {problems:g} problem{'' if problems == 1 else 's'}: not in force"


def _rule(data: Data, series: Data) -> Rule:
    rule_id = _text(data, "rule_id")
    points = _object(series, rule_id)
    return Rule(
        rule_id=rule_id,
        mode=_text(data, "mode") or None,
        candidate_of=_text(data, "candidate_of") or None,
        totals=_counts(data),
        rates=_counts(_object(data, "per_second")),
        sources=_all_numbers(_object(data, "sources")),
        sources_lately=_all_numbers(_object(data, "sources_per_second"))
        if "sources_per_second" in data
        else None,
        allowed=_sum(_numbers(points, "allowed"), _numbers(points, "shadow_allowed")),
        denied=_numbers(points, "denied"),
        would_deny=_numbers(points, "shadow_denied"),
    )


def _all_numbers(data: Data) -> dict[str, float]:
    return {name: _number(data, name) for name in data}


def _counts(data: Data) -> dict[str, float]:
    outcomes = ("allowed", "denied", "shadow_allowed", "shadow_denied")
    return {name: _number(data, name) for name in outcomes}


def _sum(some: tuple[float, ...], more: tuple[float, ...]) -> tuple[float, ...]:
    if len(some) != len(more):
        return some or more
    return tuple(one + other for one, other in zip(some, more, strict=True))


def _key(data: Data) -> Key:
    return Key(_text(data, "rule_id"), _text(data, "key"), _number(data, "per_second"))


def _queue(data: Data) -> Queue:
    return Queue(
        _text(data, "gate"),
        _number(data, "waiting"),
        _number(data, "in_flight"),
        _number_or_none(data, "slots"),
    )


def _candidate(data: Data) -> Candidate:
    return Candidate(
        rule_id=_text(data, "rule_id"),
        candidate_of=_text(data, "candidate_of") or None,
        since=_number_or_none(data, "since"),
        requests=_number(data, "requests"),
        would_deny=_number(data, "would_deny"),
        denied_anyway=_number(data, "denied_anyway"),
        keys=_number(data, "keys"),
        is_exact=data.get("keys_exact") is not False,
        newly_denied=_number_or_none(data, "newly_denied"),
        newly_allowed=_number_or_none(data, "newly_allowed"),
    )


def _object(data: Data, name: str) -> Data:
    found = data.get(name)
    return found if isinstance(found, dict) else _NOTHING


def _objects(data: Data, name: str) -> list[Data]:
    found = data.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _text(data: Data, name: str) -> str:
    found = data.get(name)
    return found if isinstance(found, str) else ""


def _texts(data: Data, name: str) -> list[str]:
    found = data.get(name)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _number(data: Data, name: str, usual: float = 0.0) -> float:
    found = _number_or_none(data, name)
    return usual if found is None else found


def _number_or_none(data: Data, name: str) -> float | None:
    return _as_number(data.get(name))


def _numbers(data: Data, name: str) -> tuple[float, ...]:
    found = data.get(name)
    return tuple(_as_number(one) or 0.0 for one in found) if isinstance(found, list) else ()


def _as_number(found: object) -> float | None:
    """*found* if it is a number that can be counted with; nothing here is below zero."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return max(0.0, float(found)) if abs(found) < _LARGEST and isfinite(found) else None


_LARGEST: Final = 1e18


# What there is to show, and where: the figures, how they came, and how large the screen is.


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
