"""What is in force: the domains of all files, and which limit they have for a descriptor."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from headgate.rules.envoy.counter import counter_name
from headgate.rules.envoy.tree import arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.rules.envoy.model import Descriptor, Domain, RateLimit
    from headgate.rules.envoy.tree import Node
    from headgate.rules.problems import Problem

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
        """Whether it is only counted: the answer is that it passes."""
        return self.way[-1].shadow_mode

    @property
    def quota_mode(self) -> bool:
        """Whether it alone denies nothing: a request is denied when all its quotas are used up."""
        return self.way[-1].quota_mode

    @property
    def metadata(self) -> Mapping[str, object]:
        """What to send back if it passes."""
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
        """What the original calls it in its metrics."""
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


def without_replaced(found: Iterable[Found | None]) -> list[Found | None]:
    """What was *found* for the descriptors of one request, None in place of what others replace.

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
