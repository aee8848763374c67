"""The configuration of envoyproxy/ratelimit in force: domains, and their limits for a descriptor.

Domain
└── Descriptor                  a key, with a value or for all values that are not named
    ├── RateLimit               how many an entry with this key and value may
    └── Descriptor, ...         what may follow it in a request

All values are frozen. One that exists is valid.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import quote

from headgate.limits import FixedWindow
from headgate.policy.problems import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


# Names that a limit replaces and no limit has.


def warn_of_unknown_names(domain: Domain) -> Iterator[Problem]:
    """A warning for every name that a limit replaces and no limit of *domain* has."""
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


# Descriptors arranged for finding: a dict on each level, and the patterns in their order.
#
# An entry of a request looks for `key_value`, then for the first pattern that `key_value` fits,
# then for `key`. What is found first decides; nothing goes back to try another. Key and value are
# looked up in one string, as the original does, so that the key `a` with the value `b` also answers
# to the key `a_b` with a value that is not configured.


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with wildcards in it; *parts* is what stands between them, two at least."""

    parts: tuple[str, ...]
    length: int

    @classmethod
    def of(cls, text: str) -> Pattern:
        parts = tuple(text.split(WILDCARD))
        return cls(parts, sum(map(len, parts)))

    def fits(self, text: str) -> bool:
        """True if *text* is the parts in their order, with anything between them."""
        first, *middle, last = self.parts
        if len(text) < self.length or not text.startswith(first) or not text.endswith(last):
            return False
        start, end = len(first), len(text) - len(last)
        for part in middle:
            found = text.find(part, start, end)
            if found < 0:
                return False
            start = found + len(part)
        return True


@dataclass(frozen=True, slots=True)
class Node:
    """A descriptor (None at the top of a domain) and what is below it."""

    descriptor: Descriptor | None
    below: Mapping[str, Node]
    patterns: tuple[tuple[Pattern, Node], ...] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    """Those of *below*, sorted."""

    def next(self, key: str, value: str) -> Node | None:
        """The next step for an entry of *key* and *value*."""
        name = f"{key}_{value}"
        node = self.below.get(name)
        if node is not None:
            return node
        for pattern, node in self.patterns:
            if pattern.fits(name):
                return node
        return self.below.get(key)

    def all_next(self, key: str) -> Iterator[Node]:
        """The next steps for entries of *key*, whatever their values; some patterns in vain."""
        beginning = f"{key}_"
        at = bisect_left(self.names, beginning)
        while at < len(self.names) and self.names[at].startswith(beginning):
            yield self.below[self.names[at]]
            at += 1
        for pattern, node in self.patterns:
            if beginning.startswith(pattern.parts[0]) and pattern.parts[0] != beginning:
                yield node
        if key in self.below:
            yield self.below[key]


def arrange(descriptors: Iterable[Descriptor], top: Descriptor | None = None) -> Node:
    """The node of *top* with *descriptors* below it."""
    below = {each.name: arrange(each.descriptors, each) for each in descriptors}
    patterns = [(Pattern.of(name), below[name]) for name in below if WILDCARD in name]
    return Node(top, below, tuple(patterns), tuple(sorted(below)))


# The name of the counter that a descriptor of a request counts on.
#
# It is made of the domain and the entries, and of nothing else: not of the unit, so that a limit
# that is changed goes on with what was used. The parts are joined with `|`, and whatever could be
# mistaken for one, or could not be printed, is percent-encoded. If that is too long, a digest
# stands for the entries. Two different descriptors never have one name.


LONGEST_NAME: Final = 200
"""The most characters in a name."""

_DOMAIN_LEFT: Final = 100
"""The most characters of the domain that stand in front of a digest."""


def counter_name(domain: str, entries: Sequence[tuple[str, str]]) -> str:
    """The name of the counter for *entries* in *domain*: unambiguous, bounded, printable."""
    parts = (domain, *chain.from_iterable(entries))
    name = "|".join(parts)
    if name.count("|") >= len(parts) or "%" in name or not name.isprintable():
        name = "|".join(map(_plain, parts))
    if len(name) > LONGEST_NAME:
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        return f"{_plain(domain)[:_DOMAIN_LEFT]}|{digest}"
    return name


def _plain(part: str) -> str:
    return quote(part, safe=" /:;,.@=+*?&#!$'()[]{}<>^`~", errors="surrogatepass")


Entries = tuple[tuple[str, str], ...]
"""The keys and values of a descriptor in a request, in their order."""


class Found(NamedTuple):
    """The limit for a descriptor of a request.

    *way* has the descriptor of the configuration that each entry led to; the last one has the
    limit, and its modes alone count.
    """

    domain: str
    entries: Entries
    way: tuple[Descriptor, ...]
    limit: RateLimit

    @property
    def shadow_mode(self) -> bool:
        """True if it is only counted: the answer is that it passes."""
        return self.way[-1].shadow_mode

    @property
    def quota_mode(self) -> bool:
        """True if it alone denies nothing: a request is denied when all its quotas are used up."""
        return self.way[-1].quota_mode

    @property
    def metadata(self) -> Mapping[str, object]:
        """The metadata to send back if it passes."""
        return self.way[-1].metadata

    @property
    def key(self) -> str:
        """The name of the counter: see `counter`. Entries that share a threshold have one value."""
        if not any(step.share_threshold for step in self.way):
            return counter_name(self.domain, self.entries)
        counted = [
            (key, _shared_value(step, key) if step.share_threshold else value)
            for (key, value), step in zip(self.entries, self.way, strict=True)
        ]
        return counter_name(self.domain, counted)

    @property
    def metric(self) -> str:
        """The name in the metrics of the original."""
        steps = list(zip(self.entries, self.way, strict=True))
        if not self.way[-1].detailed_metric:
            names = [_in_short(*entry, step) for entry, step in steps]
        elif any(step.share_threshold for step in self.way):
            names = [_with_sharing(*entry, step) for entry, step in steps]
        else:
            names = [f"{key}_{value}" for (key, value), _ in steps]
        return ".".join([self.domain, *names])


@dataclass(frozen=True, slots=True)
class EnvoyConfig:
    """The domains by their names. *warnings* is what their authors may not have meant."""

    domains: Mapping[str, Domain] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[Problem, ...] = ()
    _tops: Mapping[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tops = {name: arrange(domain.descriptors) for name, domain in self.domains.items()}
        object.__setattr__(self, "_tops", tops)

    def lookup(self, domain: str, entries: Sequence[tuple[str, str]]) -> Found | None:
        """The limit for a descriptor with *entries* in *domain*, None if nothing limits it.

        Each entry goes one level down: to its key and value, else to the first pattern that fits,
        else to its key alone. The limit is that of the level where the last entry ends, no other.
        """
        node = self._tops.get(domain)
        if node is None:
            return None
        way: list[Descriptor] = []
        for key, value in entries:
            node = node.next(key, value)
            if node is None or node.descriptor is None:
                return None
            way.append(node.descriptor)
        limit = way[-1].rate_limit if way else None
        return None if limit is None else Found(domain, tuple(entries), tuple(way), limit)

    def free_places(self, domain: str, entries: Sequence[tuple[str, str]]) -> list[int]:
        """The places of the *entries* whose values do not matter to `lookup`: each finds the only
        step there is for its key."""
        node: Node | None = self._tops[domain]
        places: list[int] = []
        for place, (key, value) in enumerate(entries):
            if node is None:
                return []
            by_key = node.below.get(key)
            if by_key is not None and all(one is by_key for one in node.all_next(key)):
                places.append(place)
            node = node.next(key, value)
        return places


def without_replaced(found: Iterable[Found | None]) -> list[Found | None]:
    """The limits *found* for the descriptors of one request, None in place of replaced ones.

    A limit that is unlimited replaces others too, and stays in any case.
    """
    limits = list(found)
    gone = {name for each in limits if each is not None for name in each.limit.replaces}
    return [
        None if each is not None and each.limit.name in gone and not each.limit.unlimited else each
        for each in limits
    ]


def _shared_value(step: Descriptor, key: str) -> str:
    return step.name.removeprefix(f"{key}_")


def _in_short(key: str, value: str, step: Descriptor) -> str:
    """The name of a step as it is written, with the value of the request if so configured."""
    is_exact = step.name == f"{key}_{value}"
    if step.is_pattern and not is_exact and (step.share_threshold or not step.value_to_metric):
        value = _shared_value(step, key)
    elif not is_exact and not step.value_to_metric:
        value = ""
    return f"{key}_{value}" if value else key


def _with_sharing(key: str, value: str, step: Descriptor) -> str:
    """The name of a step with the value that is counted."""
    counted = _shared_value(step, key) if step.share_threshold else value
    return f"{key}_{counted}" if counted else key
