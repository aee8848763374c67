"""From text or data to a policy, or to all that is wrong with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.policy.loader import scalars
from headgate.policy.loader.checks import check_candidates, check_policy
from headgate.policy.loader.diagnostics import Findings, Listing, Spot, shown
from headgate.policy.loader.documents import grow_object, grow_text
from headgate.policy.loader.identity import read_identity
from headgate.policy.loader.overload import read_pressure, read_priorities
from headgate.policy.loader.overrides import read_overrides
from headgate.policy.loader.rule_cache import KnownRule
from headgate.policy.loader.rules import Read, read_rule
from headgate.policy.loader.scalars import Fields
from headgate.policy.model import Identity, Policy
from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.policy.loader.diagnostics import Node
    from headgate.policy.loader.rule_cache import RuleMemory
    from headgate.policy.model import Rule

VERSION: Final = 1
POLICY_FIELDS: Final = ("version", "identity", "rules", "overrides", "priority", "pressure")
UNNAMED: Final = "<policy>"


@dataclass(frozen=True, slots=True)
class Examined:
    """What came of reading. *policy* is None if there is an error among *problems*."""

    policy: Policy | None
    problems: tuple[Problem, ...]


def read_policy(text: str | bytes, *, where: str = UNNAMED) -> Policy:
    """The policy that *text*, YAML or JSON, says. *where* names it in messages.

    Raises `PolicyError` with everything that is wrong.
    """
    return _policy_of(examine_policy(text, where=where))


def examine_policy(text: str | bytes, *, where: str = UNNAMED) -> Examined:
    """The same, with the warnings, and without raising."""
    return examine_policies([(where, text)])


def read_policies(sources: Iterable[tuple[str, str | bytes]]) -> Policy:
    """One policy from several texts, each with its name: their rules in the order given.

    Ids must be unique over all, and `identity` may be in one of them; an override may be in another
    one than its rule. Raises `PolicyError`.
    """
    return _policy_of(examine_policies(sources))


def examine_policies(sources: Iterable[tuple[str, str | bytes]]) -> Examined:
    """The same, with the warnings, and without raising."""
    parts = [_Part.of(where, partial(grow_text, text)) for where, text in sources]
    return _assembled(parts)


def read_policy_data(data: object, *, where: str = UNNAMED) -> Policy:
    """The policy that *data*, objects as a JSON parser makes them, says. Raises `PolicyError`."""
    return _policy_of(examine_policy_data(data, where=where))


def examine_policy_data(
    data: object, *, where: str = UNNAMED, memory: RuleMemory | None = None
) -> Examined:
    """The same, with the warnings, and without raising. What is in *memory* is not read again."""
    glance = None if memory is None else memory.look(data)
    grown = data if glance is None else glance.data
    examined = _assembled([_Part.of(where, partial(grow_object, grown))])
    if memory is not None and glance is not None and examined.policy is not None:
        memory.learn(glance, examined.policy, examined.problems)
    return examined


def read_rule_data(
    rule_id: str, data: object, identity: Identity | None = None, *, where: str = "<rule>"
) -> Rule:
    """One rule without an id of its own, for callers as *identity* tells them.

    Raises `PolicyError` with everything that is wrong.
    """
    findings = Findings(where)
    spot = Spot(grow_object(data, findings), findings, rule=rule_id)
    rule = read_rule(spot, identity or Identity(), rule_id=rule_id).rule
    if rule is None or findings.errors:
        raise PolicyError(findings.problems())
    return rule


def _policy_of(examined: Examined) -> Policy:
    if examined.policy is None:
        raise PolicyError(examined.problems)
    return examined.policy


@dataclass(slots=True)
class _Part:
    """One text of a policy: what was found in it, and its fields if it has any."""

    findings: Findings
    fields: Fields | None = None
    stopped: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, where: str, grow: Callable[[Findings], Node]) -> _Part:
        part = cls(Findings(where))
        try:
            spot = Spot(grow(part.findings), part.findings)
        except PolicyError as error:
            part.stopped = error.problems
            return part
        with suppress(PolicyError):  # too much is wrong to go on
            fields = Fields.of(spot, POLICY_FIELDS, "a policy")
            if fields is not None:
                fields.need("version", _version, f"version: {VERSION}")
            part.fields = fields
        return part

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.stopped or self.findings.problems()

    @property
    def is_sound(self) -> bool:
        return self.fields is not None and not self.findings.errors


def _version(spot: Spot) -> int | None:
    found = scalars.whole(spot, 1, 1_000_000)
    if found is not None and found != VERSION:
        spot.wrong(f"found version {found}; this Headgate reads version {VERSION}")
    return found


def _assembled(parts: list[_Part]) -> Examined:
    policy = None
    with suppress(PolicyError):  # too much is wrong to go on; the findings have it
        policy = _policy(parts)
    problems = tuple(problem for part in parts for problem in part.problems)
    return Examined(policy if all(part.is_sound for part in parts) else None, problems)


def _policy(parts: list[_Part]) -> Policy:
    """The policy that *parts* say together, as far as they are right."""
    identity = _identity(parts)
    read = [one for part in parts if part.fields for one in _rules(part.fields, identity)]
    _check_ids(read)
    _check_twins(read)
    check_candidates(read)
    if not read and all(part.is_sound for part in parts):
        _warn_of_nothing(parts)
    fields = [part.fields for part in parts if part.fields]
    given = [each["overrides"] for each in fields if "overrides" in each]
    overrides = read_overrides(given, read)
    rules = tuple(one.rule for one in read if one.rule is not None)
    spots = _given_once(parts, "priority"), _given_once(parts, "pressure")
    priorities = () if spots[0] is None else read_priorities(spots[0])
    pressure = None if spots[1] is None else read_pressure(spots[1])
    check_policy(read, priorities, pressure, spots)
    return Policy(rules, identity, overrides=overrides, priorities=priorities, pressure=pressure)


def _identity(parts: list[_Part]) -> Identity:
    """The one that is given; the usual one if none is."""
    spot = _given_once(parts, "identity")
    return Identity() if spot is None else read_identity(spot)


def _given_once(parts: list[_Part], name: str) -> Spot | None:
    """The field *name*, in the one of *parts* that has it; None if none has."""
    given = [part.fields[name] for part in parts if part.fields and name in part.fields]
    for spot in given[1:]:
        first = given[0].findings.where
        spot.wrong(f"{name} is given in {first} already; expected it in one file only")
    return given[0] if given else None


def _rules(fields: Fields, identity: Identity) -> list[Read]:
    if "rules" not in fields:
        return []
    spot = fields["rules"]
    if not isinstance(spot.node, Listing):
        spot.expected("a list of rules ([] for none)")
        return []
    return [_read(child, identity) for child in spot.children()]


def _read(spot: Spot, identity: Identity) -> Read:
    if isinstance(spot.node, KnownRule):
        rule = spot.node.rule
        return Read(spot.in_rule(rule.id), rule.id, rule)
    return read_rule(spot, identity)


def _check_ids(read: list[Read]) -> None:
    first: dict[str, Read] = {}
    for one in read:
        if one.id is None:
            continue
        if one.id in first:
            told = f"the id is taken by the rule at {_place(first[one.id].spot)}"
            one.spot.child("id").wrong(told)
        else:
            first[one.id] = one


def _place(spot: Spot) -> str:
    line = spot.node.place.line
    return f"{spot.findings.where}:{spot.path() if line is None else line}"


def _check_twins(read: list[Read]) -> None:
    """Warn of a rule that counts the same requests against the same limits as one before it."""
    first: dict[object, str] = {}
    for one in read:
        rule = one.rule
        if rule is None:
            continue
        same = (rule.match, frozenset(rule.key_by), frozenset(rule.limits.items()), rule.mode)
        soft = repr((rule.fair, rule.reserve, rule.share_by))
        twin = first.setdefault((*same, rule.cost, soft), rule.id)
        if twin != rule.id:
            one.spot.warn(f"the same match, key_by and limits as in the rule {shown(twin)}")


def _warn_of_nothing(parts: list[_Part]) -> None:
    if parts and parts[0].fields is not None:
        parts[0].fields.spot.warn("there are no rules: nothing is limited")
