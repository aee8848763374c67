"""Load a policy from text or data, or report every problem with it; and write it as data.

document (text to nodes) -> tables (nodes to models, by pydantic) -> checks -> Policy
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.policy import checks
from headgate.policy.diagnostics import Diagnostics, field_path, shown
from headgate.policy.document import Listing, Scalar, Table, parse_data, parse_text, record
from headgate.policy.fields import (
    A_NAME,
    NAME,
    CompoundFieldError,
    FieldError,
    expected,
    not_among,
    warning,
)
from headgate.policy.model import (
    DEFAULT_SOURCES,
    PRIORITIES,
    AddressSource,
    Identity,
    Match,
    Override,
    Policy,
    Pressure,
    PriorityClass,
    Source,
)
from headgate.policy.policy_document import (
    FALLBACK,
    MOST_CLASSES,
    MOST_OVERRIDES,
    RESERVED,
    VERSION,
    PolicyDocument,
)
from headgate.policy.problems import PolicyError, Problem
from headgate.policy.rule_cache import KnownOverride, KnownRule, RuleMemory
from headgate.policy.rule_document import RuleDocument, rule_to_data
from headgate.policy.tables import read, to_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headgate.policy.document import Node, Path
    from headgate.policy.model import Fallback, Rule

__all__ = [
    "Examined",
    "RuleMemory",
    "examine_policies",
    "examine_policy",
    "examine_policy_data",
    "identity_to_data",
    "override_to_data",
    "policy_to_data",
    "read_policies",
    "read_policy",
    "read_policy_data",
    "read_rule_data",
    "rule_to_data",
]

UNNAMED: Final = "<policy>"
_LONGEST_CHAIN: Final = 8


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of loading. *policy* is None if there is an error among *problems*."""

    policy: Policy | None
    problems: tuple[Problem, ...]


def read_policy(text: str | bytes, *, where: str = UNNAMED) -> Policy:
    """The policy in *text*, YAML or JSON. *where* names it in messages.

    Raises `PolicyError` with every problem.
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
    return _load([_File.of(where, partial(parse_text, text)) for where, text in sources])


def read_policy_data(data: object, *, where: str = UNNAMED) -> Policy:
    """The policy in *data*, objects as a JSON parser makes them. Raises `PolicyError`."""
    return _policy_of(examine_policy_data(data, where=where))


def examine_policy_data(
    data: object, *, where: str = UNNAMED, memory: RuleMemory | None = None
) -> Examined:
    """The same, with the warnings, and without raising. Rules in *memory* are not loaded again."""
    glance = None if memory is None else memory.look(data)
    seen = data if glance is None else glance.data
    examined = _load([_File.of(where, partial(parse_data, seen))])
    if memory is not None and glance is not None and examined.policy is not None:
        memory.learn(glance, examined.policy, examined.problems)
    return examined


def read_rule_data(
    rule_id: str, data: object, identity: Identity | None = None, *, where: str = "<rule>"
) -> Rule:
    """One rule that may leave out its id, for callers of *identity*.

    Raises `PolicyError` with every problem.
    """
    file = _File.of(where, partial(parse_data, data))
    with suppress(PolicyError):
        node = file.root
        if isinstance(node, Table):
            file.report(_flaws_of_id(rule_id, node), (), rule_id)
            key = Scalar("id", is_plain=False)
            value = Scalar(rule_id, is_plain=False)
            node = replace(
                node, entries={**node.entries, "id": value}, keys={**node.keys, "id": key}
            )
        if node is not None:
            rule = _load_rule(file, (), node, identity or Identity(), rule_id).rule
            if rule is not None and not file.diagnostics.errors:
                return rule
    raise PolicyError(file.problems)


def _flaws_of_id(rule_id: str, node: Table) -> Iterator[FieldError]:
    own = node.entries.get("id")
    if own is not None and not (isinstance(own, Scalar) and own.text == rule_id):
        what = shown(own.text) if isinstance(own, Scalar) else "something else"
        yield FieldError(f"found {what} in the rule {shown(rule_id)}; expected none", path=("id",))


def _policy_of(examined: Examined) -> Policy:
    if examined.policy is None:
        raise PolicyError(examined.problems)
    return examined.policy


@dataclass(slots=True)
class _File:
    """One text of a policy: its problems so far, and its tree."""

    diagnostics: Diagnostics
    root: Node | None = None
    stopped: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, where: str, parse: Callable[[Diagnostics], Node]) -> _File:
        file = cls(Diagnostics(where))
        try:
            file.root = parse(file.diagnostics)
        except PolicyError as error:
            file.stopped = error.problems
        return file

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.stopped or self.diagnostics.problems()

    @property
    def is_sound(self) -> bool:
        return isinstance(self.root, Table) and not self.diagnostics.errors

    def section(self, name: str) -> Node | None:
        """The section *name* of the policy."""
        return self.root.entries.get(name) if isinstance(self.root, Table) else None

    def report(self, flaws: Iterable[FieldError], path: Path, rule: str | None = None) -> None:
        """Record *flaws* of the value at *path*; with *rule*, that is a rule with this id."""
        if self.root is not None:
            is_in_rule = rule is not None or (path[:1] == ("rules",) and len(path) > 1)
            for flaw in flaws:
                whole, skip = (*path, *flaw.path), len(path) if is_in_rule else 0
                record(self.diagnostics, self.root, flaw, whole, rule=rule, skip=skip)


@dataclass(slots=True)
class _Loaded:
    """A rule as far as it could be loaded: *rule* is None if there is an error in it."""

    file: _File
    path: Path
    node: Node
    id: str | None
    rule: Rule | None
    name: str | None = None
    """The id for messages, even if it is not valid."""

    def report(self, *flaws: FieldError) -> None:
        self.file.report(flaws, self.path, self.name)


def _load(files: list[_File]) -> Examined:
    policy = None
    with suppress(PolicyError):  # too many errors to go on; the diagnostics have them
        policy = _load_policy(files)
    problems = tuple(problem for file in files for problem in file.problems)
    return Examined(policy if all(file.is_sound for file in files) else None, problems)


def _load_policy(files: list[_File]) -> Policy:
    """The policy that *files* make together, as far as they are right."""
    for file in files:
        if file.root is not None:
            _attempt(file, (), partial(read, PolicyDocument, file.root))
    identity = _load_identity(files)
    loaded = [one for file in files for one in _load_rules(file, identity)]
    _check_ids(loaded)
    _check_twins(loaded)
    _check_candidates(loaded)
    if files and not loaded and all(file.is_sound for file in files):
        files[0].report([warning("there are no rules: nothing is limited")], ())
    rules = tuple(one.rule for one in loaded if one.rule is not None)
    overrides = _load_overrides(files, {one.id: one.rule for one in loaded if one.id is not None})
    priority_file, priorities, has_strays = _load_priorities(files)
    pressure_file, pressure = _load_pressure(files)
    has_pressure = pressure_file is not None
    if len(rules) == len(loaded):
        has_classes = bool(priorities) or has_strays
        together = checks.check_together(
            rules, pressure, has_classes=has_classes, has_pressure=has_pressure
        )
        for flaw in together:
            owner = priority_file if flaw.path[0] == "priority" else pressure_file
            if owner is not None:
                owner.report([flaw], ())
    classes = {"default", *(one.priority for one in priorities)}
    if priority_file is not None and not priorities:
        classes.update(PRIORITIES)  # what is wrong with them is reported already
    for one in loaded:
        if one.rule is not None:
            one.report(*checks.unmet_needs(one.rule, classes, has_pressure=has_pressure))
    return Policy(rules, identity, overrides=overrides, priorities=priorities, pressure=pressure)


def _attempt(
    file: _File, path: Path, reading: Callable[[], Any], rule: str | None = None
) -> Any | None:
    """The value that *reading* makes; None, with its flaws reported, if there are any."""
    try:
        return reading()
    except CompoundFieldError as error:
        file.report(error.flaws, path, rule)
    except FieldError as flaw:
        file.report([flaw], path, rule)
    return None


def _given_once(files: list[_File], name: str) -> tuple[_File, Node] | None:
    """The section *name*, with the one of *files* that has it."""
    given = [(file, node) for file in files if (node := file.section(name)) is not None]
    for file, _ in given[1:]:
        first = given[0][0].diagnostics.where
        message = f"{name} is given in {first} already; expected it in one file only"
        file.report([FieldError(message)], (name,))
    return given[0] if given else None


def _load_identity(files: list[_File]) -> Identity:
    given = _given_once(files, "identity")
    if given is None:
        return Identity()
    file, node = given
    if not isinstance(node, Table):
        flaw = expected(node, "a mapping from names to where they are found")
        file.report([flaw], ("identity",))
        return Identity()
    found: dict[str, Source] = dict(DEFAULT_SOURCES)
    address, fallback = AddressSource(), Identity().fallback
    for name, child in node.entries.items():
        path = ("identity", name)
        match name:
            case "ip":
                address = _attempt(file, path, partial(read, AddressSource, child)) or address
                _check_proxies(file, address)
            case "fallback":
                chosen: Fallback | None = _attempt(file, path, partial(FALLBACK.read, child))
                fallback = chosen or fallback
            case _ if _is_free(file, name):
                source = _attempt(file, path, partial(read, Source, child, name))
                found[name] = source or DEFAULT_SOURCES.get(name, Source())
    _check_lookups(file, found, node)
    return Identity(MappingProxyType(found), address, fallback)


def _check_proxies(file: _File, address: AddressSource) -> None:
    for number, network in enumerate(address.trusted_proxies):
        if not network.prefixlen:
            message = "every address is trusted: any caller can choose its own address"
            file.report([warning(message)], ("identity", "ip", "trusted_proxies", number))


def _is_free(file: _File, name: str) -> bool:
    """True if *name* can be that of a source; else that is reported."""
    if name in RESERVED:
        message = f"{name!r} has a meaning of its own in key_by; expected another name"
    elif not NAME.fullmatch(name):
        message = f"{shown(name)} is not a name; expected {A_NAME}"
    else:
        return True
    file.report([FieldError(message, at_key=True)], ("identity", name))
    return False


def _check_lookups(file: _File, found: Mapping[str, Source], node: Table) -> None:
    """Every lookup must lead to a source of another kind, over a few others at most."""
    for name in node.entries:
        target = found[name].lookup if name in found else None
        if target is None:
            continue
        path = ("identity", name, "lookup")
        if target not in found:
            message = f"there is no source {shown(target)} to look up"
            file.report([not_among(target, found, message)], path)
        elif not _ends(found, name):
            message = f"looked up in a circle, or over more than {_LONGEST_CHAIN} others"
            file.report([FieldError(message)], path)


def _ends(found: Mapping[str, Source], name: str) -> bool:
    """True if the lookups that begin at *name* come to an end soon."""
    for _ in range(_LONGEST_CHAIN):
        target = found[name].lookup
        if target is None or target not in found:
            return True
        name = target
    return False


def _load_rules(file: _File, identity: Identity) -> list[_Loaded]:
    node = file.section("rules")
    if node is None:
        return []
    if not isinstance(node, Listing):
        file.report([expected(node, "a list of rules ([] for none)")], ("rules",))
        return []
    return [
        _load_rule(file, ("rules", number), item, identity)
        for number, item in enumerate(node.items)
    ]


def _load_rule(
    file: _File, path: Path, node: Node, identity: Identity, name: str | None = None
) -> _Loaded:
    if isinstance(node, KnownRule):
        return _Loaded(file, path, node, node.rule.id, node.rule, node.rule.id)
    said = node.entries.get("id") if isinstance(node, Table) else None
    if name is None and isinstance(said, Scalar) and not said.is_null:
        name = said.text[:100]
    rule = _attempt(file, path, partial(read, RuleDocument, node, identity), name)
    is_valid = isinstance(said, Scalar) and said.boolean is None and NAME.fullmatch(said.text)
    loaded = _Loaded(file, path, node, name if is_valid else None, rule, name)
    if rule is not None and isinstance(node, Table):
        flaws = [*checks.check_rule(rule, node, identity, file.diagnostics)]
        loaded.report(*flaws)
        if any(flaw.severity == "error" for flaw in flaws):
            loaded.rule = None
    return loaded


def _check_ids(loaded: list[_Loaded]) -> None:
    first: dict[str, _Loaded] = {}
    for one in loaded:
        if one.id is None:
            continue
        before = first.setdefault(one.id, one)
        if before is not one:
            message = f"the id is taken by the rule at {_place(before)}"
            one.report(FieldError(message, path=("id",)))


def _place(one: _Loaded) -> str:
    line = one.node.place.line
    at = field_path([step for step in one.path if isinstance(step, str | int)])
    return f"{one.file.diagnostics.where}:{at if line is None else line}"


def _check_twins(loaded: list[_Loaded]) -> None:
    """Warn of a rule that counts the same requests against the same limits as one before it."""
    first: dict[object, str] = {}
    for one in loaded:
        if one.rule is not None:
            twin = first.setdefault(checks.twin_key(one.rule), one.rule.id)
            if twin != one.rule.id:
                message = f"the same match, key_by and limits as in the rule {shown(twin)}"
                one.report(warning(message))


def _check_candidates(loaded: list[_Loaded]) -> None:
    """Each candidate must stand beside one rule that decides."""
    rules = {one.rule.id: one.rule for one in loaded if one.rule is not None}
    unread = {one.id for one in loaded if one.rule is None}
    first: dict[str, str] = {}
    for one in loaded:
        rule = one.rule
        if rule is None or rule.candidate_of in (None, rule.id):
            continue
        target = rule.candidate_of or ""
        if target in rules:
            flaws = [*checks.check_pair(rule, rules[target], first)]
        elif target in unread:
            continue  # its errors are reported already
        else:
            flaws = [_unknown_rule(target, rule, rules.values())]
        is_written = isinstance(one.node, Table) and "candidate_of" in one.node.entries
        one.report(*(flaw.under("candidate_of") if is_written else flaw for flaw in flaws))


def _unknown_rule(target: str, rule: Rule, rules: Iterable[Rule]) -> FieldError:
    known = [each.id for each in rules if each.candidate_of is None and each is not rule]
    message = f"there is no rule {shown(target)} that it could be a candidate of"
    if known:
        return not_among(target, known, message)
    return FieldError(message, hint="expected the id of a rule of this policy")


def _load_overrides(files: list[_File], rules: Mapping[str, Rule | None]) -> tuple[Override, ...]:
    found: dict[tuple[str, str], Override] = {}
    for file in files:
        node = file.section("overrides")
        if node is None:
            continue
        if not isinstance(node, Listing):
            file.report([expected(node, "a list of overrides ([] for none)")], ("overrides",))
        elif len(node.items) > MOST_OVERRIDES - len(found):
            message = f"more than {MOST_OVERRIDES} overrides; expected at most so many"
            file.report([FieldError(message)], ("overrides",))
        else:
            for number, item in enumerate(node.items):
                _load_override(file, ("overrides", number), item, rules, found)
    return tuple(found.values())


def _load_override(
    file: _File,
    path: Path,
    node: Node,
    rules: Mapping[str, Rule | None],
    found: dict[tuple[str, str], Override],
) -> None:
    if isinstance(node, KnownOverride):
        one: Override | None = node.override
    else:
        one = _attempt(file, path, partial(read, Override, node, rules))
        if one is not None:
            file.report(checks.check_override(one, rules[one.rule]), path)
    if one is None:
        return
    if (one.rule, one.key) in found:
        message = f"the rule {shown(one.rule)} has an override for this key already"
        file.report([FieldError(message, hint="expected one for each key")], (*path, "key"))
    found[one.rule, one.key] = one


def _load_priorities(files: list[_File]) -> tuple[_File | None, tuple[PriorityClass, ...], bool]:
    """The classes, with their file; true if an entry is right but for unknown fields."""
    given = _given_once(files, "priority")
    if given is None:
        return None, (), False
    file, node = given
    if not isinstance(node, Listing):
        what = "a list such as [{class: critical, match: {endpoint: /pay/**}}]"
        file.report([expected(node, what)], ("priority",))
        return file, (), False
    if len(node.items) > MOST_CLASSES:
        message = f"{len(node.items)} entries; expected at most {MOST_CLASSES}"
        file.report([FieldError(message)], ("priority",))
        return file, (), False
    found: list[PriorityClass] = []
    has_strays = False
    catch_all: int | None = None
    for number, item in enumerate(node.items):
        path = ("priority", number)
        try:
            one = read(PriorityClass, item)
        except CompoundFieldError as error:
            has_strays |= all(flaw.at_key and len(flaw.path) == 1 for flaw in error.flaws)
            file.report(error.flaws, path)
            continue
        if isinstance(item, Table):
            inner = item.entries.get("match")
            file.report(checks.check_match(one.match, inner, file.diagnostics), path)
        if catch_all is not None:
            message = f"it is never looked at: the entry {catch_all} is for every request"
            file.report([warning(message)], path)
        elif one.match == Match():
            catch_all = number + 1
        found.append(one)
    return file, tuple(found), has_strays


def _load_pressure(files: list[_File]) -> tuple[_File | None, Pressure | None]:
    given = _given_once(files, "pressure")
    if given is None:
        return None, None
    file, node = given
    pressure = _attempt(file, ("pressure",), partial(read, Pressure, node))
    if isinstance(node, Table):
        file.report(checks.check_pressure(node), ("pressure",))
    return file, pressure


def policy_to_data(policy: Policy) -> dict[str, Any]:
    """The whole policy as plain data, without its revision.

    `read_policy_data(policy_to_data(policy))` is the policy again, but for its revision.
    """
    data: dict[str, Any] = {
        "version": VERSION,
        "identity": identity_to_data(policy.identity),
        "rules": [{"id": rule.id, **rule_to_data(rule)} for rule in policy.rules],
    }
    if policy.overrides:
        data["overrides"] = [override_to_data(override) for override in policy.overrides]
    if policy.priorities:
        data["priority"] = [to_data(one) for one in policy.priorities]
    if policy.pressure is not None:
        data["pressure"] = to_data(policy.pressure)
    return data


def override_to_data(override: Override) -> dict[str, Any]:
    """One override, with its end in UTC."""
    return to_data(override)


def identity_to_data(identity: Identity) -> dict[str, Any]:
    """The identity with all sources, the default ones too."""
    data: dict[str, Any] = {}
    for name, source in identity.sources.items():
        data[name] = to_data(source)
        data[name].pop("secret", None)
        if source.secret != DEFAULT_SOURCES.get(name, Source()).secret:
            data[name]["secret"] = source.secret
    if identity.address != AddressSource():
        data["ip"] = to_data(identity.address)
    return {**data, "fallback": identity.fallback}
