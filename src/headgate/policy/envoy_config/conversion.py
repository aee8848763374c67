"""Rules that decide like the configuration, as far as rules can; and a list of where they do not.

Every limit becomes a rule for the descriptors that lead to it, with a counter for each set of
values that the configuration does not name. Rules see descriptors as `attributes_of` has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.policy.envoy_config.attributes import DESCRIPTOR, DOMAIN, attribute_names, joined
from headgate.policy.envoy_config.config import UNIT_SECONDS, arrange
from headgate.policy.fields import MAX_WORD
from headgate.policy.problems import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headgate.policy.envoy_config.config import Descriptor, Domain, EnvoyConfig, Node, RateLimit


# What a more specific descriptor takes away from a general one.
#
# In the original only the most specific descriptor counts. Of rules, all that match count. So a
# rule made of a descriptor without a value is also about the values that stand beside it. That
# changes nothing where those are limited at least as tightly themselves; elsewhere it does.


def exceptions_to(way: Sequence[Node], top: Node) -> list[Descriptor]:
    """The descriptors that take requests away from the one at the end of *way*, which begins below
    *top*, and do not hold them as tightly."""
    own = way[-1].descriptor
    if own is None or own.shadow_mode:  # it denies nothing
        return []
    steps = [node.descriptor for node in way if node.descriptor is not None]
    return [
        rival.descriptor
        for index, level in enumerate((top, *way[:-1]))
        for rival in _rivals(level, way[index])
        if rival.descriptor is not None
        and not all(_is_as_tight(end, own) for end in _ends(rival, steps[index + 1 :]))
    ]


def _rivals(level: Node, step: Node) -> Iterator[Node]:
    """The steps before *step* on its *level* for some entries with its key."""
    if step.descriptor is not None and step.descriptor.value is None:
        yield from (node for node in level.all_next(step.descriptor.key) if node is not step)


def _ends(node: Node, rest: Sequence[Descriptor]) -> Iterator[Descriptor | None]:
    """Where requests that are at *node* can end when *rest* is what they must fit yet.

    None: nothing limits them, or a limit of which no rule is made, because of a pattern.
    """
    descriptor = node.descriptor
    if not rest or descriptor is None or descriptor.is_pattern:
        yield None if descriptor is None or descriptor.is_pattern else descriptor
        return
    following, is_sure = _following(node, rest[0])
    if not is_sure:
        yield None
    for each in following:
        yield from _ends(each, rest[1:])


def _following(node: Node, step: Descriptor) -> tuple[list[Node], bool]:
    """The next nodes from *node* for requests that fit *step*, and whether there are any."""
    if step.value is None:
        return list(node.all_next(step.key)), step.key in node.below
    only = node.next(step.key, step.value)
    return ([], False) if only is None else ([only], True)


def _is_as_tight(end: Descriptor | None, own: Descriptor) -> bool:
    """True if what *end* lets pass can never be too much for *own*."""
    limit = None if end is None else end.rate_limit
    if end is None or limit is None or own.rate_limit is None or end.shadow_mode:
        return False
    return limit.closed or _is_within(limit, own.rate_limit)


def _is_within(inner: RateLimit, outer: RateLimit) -> bool:
    """True if all that *inner* lets pass in a window of *outer* fits in there."""
    if inner.unit is None or outer.unit is None:
        return outer.unit is None
    short, long = UNIT_SECONDS[inner.unit], UNIT_SECONDS[outer.unit]
    windows = 1 if short % long == 0 else long // short if long % short == 0 else long // short + 2
    return inner.requests_per_unit * windows <= outer.requests_per_unit


LONGEST_ID: Final = 90
"""The most characters of an id before it is given a number."""

_PERIODS: Final = {"month": " per 30 days", "year": " per 365 days"}
_MOST_NAMED: Final = 3
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNFIT_IN_ID: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A policy as data, and a warning for all that the configuration means and it does not."""

    policy: dict[str, object]
    warnings: tuple[Problem, ...]


def convert(config: EnvoyConfig) -> Conversion:
    """The rules for *config*, in the order of its limits."""
    ids: set[str] = set()
    rules: list[dict[str, object]] = []
    warnings: list[Problem] = []
    for domain in config.domains.values():
        top = arrange(domain.descriptors)
        for nodes in _ways(top):
            way = _Way.of(domain.name, nodes)
            reason = way.unfit()
            if reason is not None:
                warnings.append(way.warning(f"left out: {reason}"))
                continue
            rule = way.rule(ids)
            rules.append(rule)
            warnings += way.shortcomings(str(rule["id"]), nodes, top)
        warnings += _not_carried_over(domain)
    policy = {"version": 1, "identity": {"fallback": "shared"}, "rules": rules}
    return Conversion(policy, tuple(warnings))


def _ways(node: Node, before: tuple[Node, ...] = ()) -> Iterator[tuple[Node, ...]]:
    """The nodes that lead to each limit below *node*."""
    for below in node.below.values():
        way = (*before, below)
        if below.descriptor is not None and below.descriptor.rate_limit is not None:
            yield way
        yield from _ways(below, way)


@dataclass(frozen=True, slots=True)
class _Way:
    """The descriptors that lead to a *limit*."""

    domain: str
    steps: tuple[Descriptor, ...]
    limit: RateLimit

    @classmethod
    def of(cls, domain: str, nodes: tuple[Node, ...]) -> _Way:
        steps = tuple(node.descriptor for node in nodes if node.descriptor is not None)
        limit = steps[-1].rate_limit
        assert limit is not None  # noqa: S101 - for the type checker
        return cls(domain, steps, limit)

    def __str__(self) -> str:
        steps = (f"{each.key}={'any' if each.value is None else each.value}" for each in self.steps)
        return f"{self.domain}: {', '.join(steps)}"

    def warning(self, message: str, rule: str | None = None) -> Problem:
        origin = self.steps[-1].origin
        text = message if rule else f"{quoted(str(self))} is {message}"
        return Problem("warning", origin.where, text, origin.line, origin.column, rule=rule)

    def unfit(self) -> str | None:
        """Why no rule can be made of it, if so."""
        pattern = next((step for step in self.steps if step.is_pattern), None)
        if pattern is not None:
            return f"a rule has no wildcards, as in {quoted(pattern.name)}"
        if self.limit.unlimited:
            return "what no rule limits is unlimited; rules that match it too do count"
        if self.limit.closed:
            return "a limit of 0 is no limit here: refuse these requests in another way"
        words = [self.domain, joined(step.key for step in self.steps)]
        words += [word for step in self.steps for word in (step.key, step.value) if word]
        if any(not _is_word(word) for word in words):
            return "a name in it is blank, too long or not printable"
        return None

    def rule(self, ids: set[str]) -> dict[str, object]:
        """The rule for it, with an id that is not among *ids*."""
        names = attribute_names(step.key for step in self.steps)
        values = {
            name: True if step.value is None else step.value
            for name, step in zip(names, self.steps, strict=True)
        }
        counted = [f"attribute:{name}" for name, value in values.items() if value is True]
        about: dict[str, object] = {
            "id": self._id(ids),
            "description": self._description(),
            "match": {"attributes": self._where() | values},
            "key_by": counted or "global",
            "limit": f"{self.limit.requests_per_unit}{self._period()} fixed_window",
        }
        return about | {"mode": "shadow"} if self.steps[-1].shadow_mode else about

    def _where(self) -> dict[str, object]:
        return {DOMAIN: self.domain, DESCRIPTOR: joined(step.key for step in self.steps)}

    def _period(self) -> str:
        return _PERIODS.get(str(self.limit.unit), f"/{self.limit.unit}")

    def _description(self) -> str:
        called = "" if self.limit.name is None else f" ({self.limit.name})"
        return f"From envoyproxy/ratelimit, {self}{called}"

    def _id(self, ids: set[str]) -> str:
        name = ".".join([self.domain, *(step.name for step in self.steps)])
        plain = _UNFIT_IN_ID.sub("-", name).strip("-.")[:LONGEST_ID] or "limit"
        found, number = plain, 1
        while found in ids:
            number += 1
            found = f"{plain}-{number}"
        ids.add(found)
        return found

    def shortcomings(self, rule: str, nodes: tuple[Node, ...], top: Node) -> Iterator[Problem]:
        """The differences of the *rule* made of it."""
        others = exceptions_to(nodes, top)
        if others:
            named = ", ".join(quoted(each.name) for each in others[:_MOST_NAMED])
            more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
            message = f"it also limits {named}{more}: a rule has no exceptions, all matches count"
            yield self.warning(message, rule)
        if self.limit.replaces:
            names = ", ".join(quoted(name) for name in self.limit.replaces)
            yield self.warning(f"it does not replace {names}: all rules that match count", rule)
        if self.steps[-1].quota_mode:
            message = "quota_mode is not kept: it denies even while another quota has room"
            yield self.warning(message, rule)


def _is_word(text: str) -> bool:
    return bool(text.strip()) and len(text) <= MAX_WORD and not _UNFIT.search(text)


_LOST: Final[Mapping[str, str]] = {
    "detailed_metric": "metrics are named by rules",
    "value_to_metric": "metrics are named by rules",
    "metadata": "answers have none",
}


def _not_carried_over(domain: Domain) -> Iterator[Problem]:
    """A warning for each field that means nothing to rules, at the first descriptor that has it."""
    for field, instead in _LOST.items():
        having = [each for each in domain.all_descriptors() if getattr(each, field)]
        if having:
            origin = having[0].origin
            where = f"{quoted(domain.name)} ({len(having)} times)"
            message = f"{field} is not kept in {where}: {instead}"
            yield Problem("warning", origin.where, message, origin.line, origin.column)
