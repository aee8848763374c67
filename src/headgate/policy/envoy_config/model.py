"""The configuration of envoyproxy/ratelimit as frozen values. One that exists is valid.

Domain
└── Descriptor                  a key, with a value or for all values that are not named
    ├── RateLimit               how many an entry with this key and value may
    └── Descriptor, ...         what may follow it in a request
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from headgate.limits import FixedWindow
from headgate.policy.problems import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


Unit = Literal["second", "minute", "hour", "day", "week", "month", "year"]

UNIT_SECONDS: Final[Mapping[Unit, int]] = MappingProxyType(
    {
        "second": 1,
        "minute": 60,
        "hour": 3_600,
        "day": 86_400,
        "week": 7 * 86_400,
        "month": 30 * 86_400,
        "year": 365 * 86_400,
    }
)
"""The seconds of each unit. Windows begin at multiples of it since the epoch."""

WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The requests that pass in a *unit*. Without a unit it is unlimited, with 0 it is closed.

    When the limits for one call are found, those that another one *replaces*, by name, are left
    out: see `without_replaced`.
    """

    unit: Unit | None = None
    requests_per_unit: int = 0
    name: str | None = None
    replaces: tuple[str, ...] = ()
    window: FixedWindow | None = field(init=False, repr=False, compare=False)
    """The same as a limit of ours; None if it is unlimited, or closed: no limit of ours is 0."""

    def __post_init__(self) -> None:
        limit = None
        if self.unit is not None and self.requests_per_unit:
            limit = FixedWindow(self.requests_per_unit, UNIT_SECONDS[self.unit])
        object.__setattr__(self, "window", limit)

    @property
    def unlimited(self) -> bool:
        """True if everything passes, uncounted."""
        return self.unit is None

    @property
    def closed(self) -> bool:
        """True if nothing passes."""
        return self.unit is not None and not self.requests_per_unit


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a descriptor is written: the file, and line and column counted from 1."""

    where: str = ""
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The limit of an entry with this *key* and *value* (None: any), and the entries below it.

    Without a limit and without descriptors below it lets pass what it matches. *share_threshold*
    gives all that match the wildcards of *value* one counter. *detailed_metric* and
    *value_to_metric* change names of metrics alone. *metadata* goes back with the answer.
    """

    key: str
    value: str | None = None
    rate_limit: RateLimit | None = None
    descriptors: tuple[Descriptor, ...] = ()
    shadow_mode: bool = False
    quota_mode: bool = False
    detailed_metric: bool = False
    value_to_metric: bool = False
    share_threshold: bool = False
    metadata: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    origin: Origin = field(default=Origin(), repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)
    """Key and value in one, by which it is found: `key`, or `key_value`."""

    def __post_init__(self) -> None:
        name = self.key if self.value is None else f"{self.key}_{self.value}"
        object.__setattr__(self, "name", name)

    @property
    def is_pattern(self) -> bool:
        """True if it has wildcards, each for any number of characters, none included."""
        return WILDCARD in self.name


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of limits apart from all others, with the descriptors that a request can begin with."""

    name: str
    descriptors: tuple[Descriptor, ...] = ()

    def all_descriptors(self) -> Iterator[Descriptor]:
        """Those at the top and all below, each before those below it."""
        waiting = list(reversed(self.descriptors))
        while waiting:
            yield (descriptor := waiting.pop())
            waiting += reversed(descriptor.descriptors)


# Names of limits: which are replaced and belong to nobody.


def warn_of_unknown_names(domains: Iterable[Domain]) -> list[Problem]:
    """A warning for every name that a limit replaces and no limit of its domain has."""
    return [problem for domain in domains for problem in _unknown_in(domain)]


def _unknown_in(domain: Domain) -> Iterator[Problem]:
    limits = [
        (each.rate_limit, each.origin)
        for each in domain.all_descriptors()
        if each.rate_limit is not None
    ]
    known = {limit.name for limit, _ in limits}
    for limit, origin in limits:
        for name in limit.replaces:
            if name not in known:
                message = f"it replaces {quoted(name)}, a name that no limit in the domain has"
                yield Problem("warning", origin.where, message, origin.line, origin.column)
