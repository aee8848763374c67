"""Whose counter is meant: by its key, by a request, or by what is known of the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.engine.plan import plan_rule
from headgate.limits import with_extra
from headgate.rules.reading.amounts import DEFAULT_TIER
from headgate.rules.reading.overrides import LONGEST_KEY
from headgate.rules.request import Request
from headgate.service.admin.key_shape import fits, key_shape
from headgate.service.http.asked import TO_LOOK, Flaws, invalid, read_asked
from headgate.service.http.replies import Flaw, RefusedError, problem

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.rules.model import Identity, Override, Policy, Rule
    from headgate.service.core import Core
    from headgate.stores.operations import Check

WAYS: Final = ("key", "request", "identity")
_ABOUT: Final = frozenset(("rule", "key", "tier", "request", "identity"))


@dataclass(frozen=True, slots=True)
class Named:
    """A counter of *rule*, under *limits*; with what is otherwise for it now, if anything is.

    *applies* is whether the rule is for the request that it was named by; None if it was not.
    """

    rule: Rule
    key: str
    limits: tuple[Limit, ...]
    override: Override | None
    applies: bool | None

    def checks(self, namespace: str) -> tuple[Check, ...]:
        """How to look at it: each limit, for one unit."""
        extra = 0 if self.override is None else self.override.extra
        limits = tuple(with_extra(one, extra) if extra else one for one in self.limits)
        return plan_rule(self.rule, limits, self.key, 1, namespace).checks

    def every_check(self, namespace: str) -> tuple[Check, ...]:
        """All the places where something may be counted for it, of whatever tier."""
        found: dict[Check, None] = {}
        for limits in self.rule.limits.values():
            found |= dict.fromkeys(plan_rule(self.rule, limits, self.key, 1, namespace).checks)
        return tuple(found)


class Naming:
    """Finds the counters that are meant, in the policy in force."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def named(self, document: dict[str, Any], *more: str) -> Named:
        """The counter that *document* means, which may have the fields *more* besides.

        Raises `RefusedError` with all that is wrong with it.
        """
        _check(document, more)
        engine = self._core.engine.in_force.engine
        policy = engine.policy
        rule = next((one for one in policy.rules if one.id == document["rule"]), None)
        if rule is None:
            told = f"there is no rule {document['rule'][:100]!r} in force"
            raise RefusedError(problem(404, told))
        if rule.fair is not None:
            told = f"the rule {rule.id!r} has no counters: its requests take turns, in each app"
            raise RefusedError(problem(422, told))
        if "key" in document:
            _check_shape(document["key"], rule, policy.identity)
            tier = _tier(rule, document.get("tier"))
            return self._named(policy, rule, document["key"], rule.limits_for(tier), None)
        request = _request(document, policy.identity)
        found = engine.identifier.find(request)
        key = engine.identifier.key(rule, request, found)
        limits = rule.limits_for(found["tier"])
        if key is None or not limits:
            told = f"the rule {rule.id!r} does not limit this caller: it has no counter"
            raise RefusedError(problem(422, told))
        applies = None
        if "request" in document:
            applies = any(one.id == rule.id for one in engine.matching(request))
        return self._named(policy, rule, key, limits, applies)

    def _named(
        self,
        policy: Policy,
        rule: Rule,
        key: str,
        limits: tuple[Limit, ...],
        applies: bool | None,  # noqa: FBT001 (it is told, it chooses nothing)
    ) -> Named:
        now_ns = self._core.clock()
        override = next(
            (
                one
                for one in policy.overrides
                if (one.rule, one.key) == (rule.id, key) and one.until_ns > now_ns
            ),
            None,
        )
        return Named(rule, key, limits, override, applies)


def _check(document: dict[str, Any], more: tuple[str, ...]) -> None:
    """Refuse what does not name one counter."""
    flaws = Flaws()
    known = sorted({*_ABOUT, *more})
    for name in document:
        if name not in known:
            flaws.append(Flaw(name[:40], "no such field", f"expected {', '.join(known)}"))
    if not isinstance(document.get("rule"), str):
        flaws.add("rule", document.get("rule"), "the id of a rule")
    given = [way for way in WAYS if way in document]
    if len(given) != 1:
        flaws.append(Flaw("key", f"found {len(given)} of {', '.join(WAYS)}", "expected one"))
    key = document.get("key", "x")
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        flaws.add("key", key, "the key of a counter, as explain shows it")
    for name in ("request", "identity"):
        if name in document and not isinstance(document[name], dict):
            flaws.add(name, document[name], "an object")
    if "tier" in document and "key" not in document:
        flaws.append(Flaw("tier", "it is for a key", "expected it in request or identity"))
    if flaws:
        raise invalid(flaws)


def _check_shape(key: str, rule: Rule, identity: Identity) -> None:
    """Refuse what cannot be a key of *rule*; it may be a secret, so it is not repeated."""
    if not fits(key, rule, identity):
        hint = f"expected {key_shape(rule, identity)}; or say identity, to name a caller by it"
        raise invalid([Flaw("key", f"no key of the rule {rule.id!r}", hint)])


def _tier(rule: Rule, named: object) -> str | None:
    """The tier whose limits a key is under."""
    tiers = [DEFAULT_TIER if tier is None else tier for tier in rule.limits]
    if named is None and len(rule.limits) == 1:
        return next(iter(rule.limits))
    if named not in tiers:
        flaws = Flaws()
        flaws.add("tier", named, f"one of {', '.join(tiers[:20])}: the limits differ")
        raise invalid(flaws)
    return None if named == DEFAULT_TIER else str(named)


def _request(document: dict[str, Any], identity: Identity) -> Request:
    if "request" in document:
        return read_asked(document["request"], TO_LOOK).request
    return _request_of(document["identity"], identity)


def _request_of(values: dict[str, Any], identity: Identity) -> Request:
    """A request of the caller who is known by *values*."""
    flaws = Flaws()
    headers: list[tuple[str, str]] = []
    attributes: dict[str, str] = {}
    peer = ""
    for name, value in values.items():
        source = identity.sources.get(name)
        if not isinstance(value, str):
            flaws.add(f"identity.{name[:40]}", value, "a text")
        elif name == "ip":
            peer = value
        elif source is None or source.lookup is not None:
            known = [one for one, each in identity.sources.items() if each.lookup is None]
            hint = f"expected ip, {', '.join(known)}"
            flaws.append(Flaw(f"identity.{name[:40]}", "nothing that a caller says", hint))
        elif source.header is not None:
            headers.append((source.header, value))
        elif source.cookie is not None:
            headers.append(("cookie", f"{source.cookie}={value}"))
        elif source.attribute is not None:
            attributes[source.attribute] = value
    if flaws:
        raise invalid(flaws)
    return Request(headers=tuple(headers), peer=peer, attributes=attributes)
