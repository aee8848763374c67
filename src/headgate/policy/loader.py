"""Load a policy from text or data, or report every problem with it; and write it as data.

document (text to nodes) -> tables (nodes to models) -> checks -> Policy
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.policy import checks
from headgate.policy.document import (
    Listing,
    Scalar,
    Table,
    free_in_steps,
    parse_data,
    parse_text,
    record,
)
from headgate.policy.fields import (
    A_NAME,
    NAME,
    FieldError,
    InvalidValueError,
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
    MAX_OVERRIDES,
    PRICES,
    RESERVED,
    VERSION,
    PolicyDocument,
    RuleDocument,
)
from headgate.policy.problems import Diagnostics, PolicyError, Problem, field_path, quoted
from headgate.policy.rule_cache import CachedNode, RuleCache
from headgate.policy.tables import known_fields, read, to_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.llm.prices import Price
    from headgate.policy.document import Node, Path
    from headgate.policy.model import Rule

UNNAMED: Final = "<policy>"
_MAX_CHAIN: Final = 8


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


def examine_policies(
    sources: Iterable[tuple[str, str | bytes]], *, visit: Callable[[Node], None] = lambda _: None
) -> Examined:
    """One policy from several texts, each with its name: their rules in the order given.

    Ids must be unique over all, and `identity` may be in one of them; an override may be in another
    one than its rule. *visit* is called with the tree of each text of a valid policy.
    """
    return _load([_File.of(where, partial(parse_text, text)) for where, text in sources], visit)


def read_policy_data(data: object, *, where: str = UNNAMED) -> Policy:
    """The policy in *data*, objects as a JSON parser makes them. Raises `PolicyError`."""
    return _policy_of(examine_policy_data(data, where=where))


def examine_policy_data(
    data: object, *, where: str = UNNAMED, cache: RuleCache | None = None
) -> Examined:
    """The same, with the warnings, and without raising. Rules in *cache* are not loaded again."""
    lookup = None if cache is None else cache.lookup(data)
    seen = data if lookup is None else lookup.data
    examined = _load([_File.of(where, partial(parse_data, seen))])
    if cache is not None and lookup is not None and examined.policy is not None:
        cache.keep(lookup, examined.policy, examined.problems)
    return examined


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

    def has(self, name: str) -> bool:
        """True if the policy has the section *name*."""
        return isinstance(self.root, Table) and name in self.root.entries

    def section(self, name: str) -> Node | None:
        """The section *name* of the policy; None if it is missing, or not of its type."""
        if not isinstance(self.root, Table) or name not in self.root.entries:
            return None
        kind = known_fields(PolicyDocument).fields[name]
        found: Node | None = self.attempt((name,), partial(kind.read, self.root.entries[name]))
        return found

    def items(self, name: str) -> list[tuple[Path, Node]]:
        """The items of the section *name*, a list, with their paths."""
        node = self.section(name)
        items = node.items if isinstance(node, Listing) else []
        return [((name, number), item) for number, item in enumerate(items)]

    def report(self, path: Path, *errors: FieldError, rule: str | None = None) -> None:
        """Record *errors* of the value at *path*; with *rule*, in the rule with this id."""
        skip = len(path) if path[:1] == ("rules",) and len(path) > 1 else 0
        for error in errors:
            if self.root is not None:
                whole = (*path, *error.path)
                record(self.diagnostics, self.root, error, whole, rule=rule, skip=skip)

    def attempt(self, path: Path, reading: Callable[[], Any], rule: str | None = None) -> Any:
        """The value that *reading* makes; None, with its errors reported, if there are any."""
        try:
            return reading()
        except InvalidValueError as error:
            self.report(path, *error.errors, rule=rule)
        return None


@dataclass(slots=True)
class _LoadedRule:
    """A rule as far as it could be loaded: *rule* is None if there is an error in it.

    *id* is None if it is not valid; *name* is the id for messages, valid or not.
    """

    file: _File
    path: Path
    node: Node
    id: str | None
    name: str | None
    rule: Rule | None

    @classmethod
    def load(cls, file: _File, path: Path, node: Node, identity: Identity) -> _LoadedRule:
        if isinstance(node, CachedNode):
            return cls(file, path, node, node.value.id, node.value.id, node.value)
        given = node.entries.get("id") if isinstance(node, Table) else None
        name = given.text[:100] if isinstance(given, Scalar) and not given.is_null else None
        is_valid = (
            isinstance(given, Scalar) and given.boolean is None and NAME.fullmatch(given.text)
        )
        rule = file.attempt(path, partial(read, RuleDocument, node, identity), name)
        loaded = cls(file, path, node, name if is_valid else None, name, rule)
        if rule is not None and isinstance(node, Table):
            errors = [*checks.check_rule(rule, node, identity, file.diagnostics)]
            loaded.report(*errors)
            if any(error.severity == "error" for error in errors):
                loaded.rule = None
        return loaded

    def report(self, *errors: FieldError) -> None:
        self.file.report(self.path, *errors, rule=self.name)

    @property
    def place(self) -> str:
        line = self.node.place.line
        at = field_path([step for step in self.path if isinstance(step, str | int)])
        return f"{self.file.diagnostics.where}:{at if line is None else line}"


def _load(files: list[_File], visit: Callable[[Node], None] = lambda _: None) -> Examined:
    policy = None
    with suppress(PolicyError):  # too many errors to go on; the diagnostics have them
        policy = _load_policy(files)
    problems = tuple(problem for file in files for problem in file.problems)
    is_sound = all(file.is_sound for file in files)
    for file in files:
        if file.root is not None:
            if is_sound:
                visit(file.root)
            free_in_steps(file.root)
    return Examined(policy if is_sound else None, problems)


def _load_policy(files: list[_File]) -> Policy:
    """The policy that *files* make together, as far as they are right."""
    for file in files:
        if file.root is not None:
            file.attempt((), partial(read, PolicyDocument, file.root))
    identity = _load_identity(_owner(files, "identity"))
    loaded = [
        _LoadedRule.load(file, path, node, identity)
        for file in files
        for path, node in file.items("rules")
    ]
    _check_ids(loaded)
    _check_twins(loaded)
    _check_candidates(loaded)
    if files and not loaded and all(file.is_sound for file in files):
        files[0].report((), warning("there are no rules: nothing is limited"))
    rules = tuple(one.rule for one in loaded if one.rule is not None)
    overrides = _load_overrides(files, {one.id: one.rule for one in loaded if one.id is not None})
    owners = {name: _owner(files, name) for name in ("priority", "pressure")}
    priorities, has_classes = _load_priorities(owners["priority"])
    pressure = _load_pressure(owners["pressure"])
    _check_together(owners, loaded, priorities, pressure, has_classes=has_classes)
    prices = _load_prices(_owner(files, "prices"))
    _check_prices(loaded, prices)
    return Policy(
        rules,
        identity,
        overrides=overrides,
        priorities=priorities,
        pressure=pressure,
        prices=prices,
    )


def _owner(files: list[_File], name: str) -> _File | None:
    """The one of *files* that has the section *name*."""
    given = [file for file in files if file.has(name)]
    for file in given[1:]:
        message = f"{name} is given in {given[0].diagnostics.where} already"
        file.report((name,), FieldError(message, hint="expected it in one file only"))
    return given[0] if given else None


def _load_identity(file: _File | None) -> Identity:
    node = None if file is None else file.section("identity")
    if file is None or not isinstance(node, Table):
        return Identity()
    found: dict[str, Source] = dict(DEFAULT_SOURCES)
    address, fallback = AddressSource(), Identity().fallback
    for name, child in node.entries.items():
        path = ("identity", name)
        match name:
            case "ip":
                address = file.attempt(path, partial(read, AddressSource, child)) or address
                _check_proxies(file, address)
            case "fallback":
                fallback = file.attempt(path, partial(FALLBACK.read, child)) or fallback
            case _ if _is_free(file, name):
                source = file.attempt(path, partial(read, Source, child, name))
                found[name] = source or DEFAULT_SOURCES.get(name, Source())
    _check_lookups(file, found, node)
    return Identity(MappingProxyType(found), address, fallback)


def _check_proxies(file: _File, address: AddressSource) -> None:
    for number, network in enumerate(address.trusted_proxies):
        if not network.prefixlen:
            message = "every address is trusted: any caller can choose its own address"
            file.report(("identity", "ip", "trusted_proxies", number), warning(message))


def _is_free(file: _File, name: str) -> bool:
    """True if *name* can be that of a source; else that is reported."""
    if name in RESERVED:
        message = f"{name!r} has a meaning of its own in key_by; expected another name"
    elif not NAME.fullmatch(name):
        message = f"{quoted(name)} is not a name; expected {A_NAME}"
    else:
        return True
    file.report(("identity", name), FieldError(message, at_key=True))
    return False


def _check_lookups(file: _File, found: Mapping[str, Source], node: Table) -> None:
    """Every lookup must lead to a source of another kind, over a few others at most."""
    for name in node.entries:
        target = found[name].lookup if name in found else None
        if target is None:
            continue
        path = ("identity", name, "lookup")
        if target not in found:
            message = f"there is no source {quoted(target)} to look up"
            file.report(path, not_among(target, found, message))
        elif not _ends(found, name):
            message = f"looked up in a circle, or over more than {_MAX_CHAIN} others"
            file.report(path, FieldError(message))


def _ends(found: Mapping[str, Source], name: str) -> bool:
    """True if the lookups that begin at *name* come to an end soon."""
    for _ in range(_MAX_CHAIN):
        target = found[name].lookup
        if target is None or target not in found:
            return True
        name = target
    return False


def _check_ids(loaded: list[_LoadedRule]) -> None:
    first: dict[str, _LoadedRule] = {}
    for one in loaded:
        before = one if one.id is None else first.setdefault(one.id, one)
        if before is not one:
            message = f"the id is taken by the rule at {before.place}"
            one.report(FieldError(message, path=("id",)))


def _check_twins(loaded: list[_LoadedRule]) -> None:
    """Warn of a rule that counts the same requests against the same limits as one before it."""
    first: dict[object, str] = {}
    for one in loaded:
        if one.rule is not None:
            twin = first.setdefault(checks.twin_key(one.rule), one.rule.id)
            if twin != one.rule.id:
                message = f"the same match, key_by and limits as in the rule {quoted(twin)}"
                one.report(warning(message))


def _check_candidates(loaded: list[_LoadedRule]) -> None:
    """Each candidate must stand beside one rule that decides."""
    rules = {one.rule.id: one.rule for one in loaded if one.rule is not None}
    invalid = {one.id for one in loaded if one.rule is None}
    first: dict[str, str] = {}
    for one in loaded:
        rule = one.rule
        if rule is None or rule.candidate_of in (None, rule.id) or rule.candidate_of in invalid:
            continue
        target = rule.candidate_of or ""
        if target in rules:
            errors = [*checks.check_pair(rule, rules[target], first)]
        else:
            known = [each.id for each in rules.values() if each.candidate_of is None]
            message = f"there is no rule {quoted(target)} that it could be a candidate of"
            errors = [not_among(target, known, message)]
        is_written = isinstance(one.node, Table) and "candidate_of" in one.node.entries
        one.report(*(error.under("candidate_of") if is_written else error for error in errors))


def _load_overrides(files: list[_File], rules: Mapping[str, Rule | None]) -> tuple[Override, ...]:
    found: dict[tuple[str, str], Override] = {}
    for file in files:
        for path, node in file.items("overrides"):
            one = _load_override(file, path, node, rules)
            if one is None:
                continue
            if (one.rule, one.key) in found:
                message = f"the rule {quoted(one.rule)} has an override for this key already"
                file.report((*path, "key"), FieldError(message, hint="expected one for each key"))
            found[one.rule, one.key] = one
        if len(found) > MAX_OVERRIDES:
            message = f"more than {MAX_OVERRIDES} overrides in all files"
            file.report(("overrides",), FieldError(message))
            break
    return tuple(found.values())


def _load_override(
    file: _File, path: Path, node: Node, rules: Mapping[str, Rule | None]
) -> Override | None:
    if isinstance(node, CachedNode):
        known: Override = node.value
        return known
    one: Override | None = file.attempt(path, partial(read, Override, node, rules))
    if one is not None:
        file.report(path, *checks.check_override(one, rules[one.rule]))
    return one


def _load_priorities(file: _File | None) -> tuple[tuple[PriorityClass, ...], bool]:
    """The classes, and true if there are any, those with unknown fields included."""
    found: list[PriorityClass] = []
    if file is None:
        return (), False
    has_classes, catch_all = False, 0
    for number, (path, node) in enumerate(file.items("priority"), 1):
        try:
            one = read(PriorityClass, node)
        except InvalidValueError as error:
            has_classes |= all(each.at_key and len(each.path) == 1 for each in error.errors)
            file.report(path, *error.errors)
            continue
        inner = node.entries.get("match") if isinstance(node, Table) else None
        file.report(path, *checks.check_match(one.match, inner, file.diagnostics))
        if catch_all:
            message = f"it is never used: the entry {catch_all} is for every request"
            file.report(path, warning(message))
        elif one.match == Match():
            catch_all = number
        found.append(one)
    return tuple(found), has_classes or bool(found)


def _load_pressure(file: _File | None) -> Pressure | None:
    node = None if file is None else file.section("pressure")
    if file is None or node is None:
        return None
    found: Pressure | None = file.attempt(("pressure",), partial(read, Pressure, node))
    if isinstance(node, Table):
        file.report(("pressure",), *checks.check_pressure(node))
    return found


def _load_prices(file: _File | None) -> Mapping[str, Price] | None:
    node = None if file is None else file.section("prices")
    if file is None or node is None:
        return None
    found: Mapping[str, Price] | None = file.attempt(("prices",), partial(PRICES.read, node))
    return found or {}  # what is wrong with them is reported already


def _check_prices(loaded: list[_LoadedRule], prices: Mapping[str, Price] | None) -> None:
    """Report rules that count spend without prices."""
    for one in loaded:
        if one.rule is not None and one.rule.counts_spend and prices is None:
            hint = "add prices to the policy, such as prices: {gpt-4o: {input: 2.5, output: 10}}"
            message = "the policy has no prices, and the rule counts spend"
            one.report(FieldError(message, hint=hint, path=("cost",)))


def _check_together(
    owners: Mapping[str, _File | None],
    loaded: list[_LoadedRule],
    priorities: tuple[PriorityClass, ...],
    pressure: Pressure | None,
    *,
    has_classes: bool,
) -> None:
    """Report what rules, priorities and pressure lack of each other."""
    rules = [one.rule for one in loaded if one.rule is not None]
    has_pressure = owners["pressure"] is not None
    if len(rules) == len(loaded):
        together = checks.check_together(
            rules, pressure, has_classes=has_classes, has_pressure=has_pressure
        )
        for error in together:
            owner = owners[str(error.path[0])]
            if owner is not None:
                owner.report((), error)
    classes: set[str] = {"default", *(one.priority for one in priorities)}
    if owners["priority"] is not None and not priorities:
        classes.update(PRIORITIES)  # what is wrong with them is reported already
    for one in loaded:
        if one.rule is not None:
            one.report(*checks.unmet_needs(one.rule, classes, has_pressure=has_pressure))


def policy_to_data(policy: Policy) -> dict[str, Any]:
    """The whole policy as plain data, without its revision.

    `read_policy_data(policy_to_data(policy))` is the policy again, but for its revision.
    """
    data: dict[str, Any] = {
        "version": VERSION,
        "identity": identity_to_data(policy.identity),
        "rules": [to_data(rule) for rule in policy.rules],
    }
    if policy.overrides:
        data["overrides"] = [to_data(override) for override in policy.overrides]
    if policy.priorities:
        data["priority"] = [to_data(one) for one in policy.priorities]
    if policy.pressure is not None:
        data["pressure"] = to_data(policy.pressure)
    if policy.prices is not None:
        data["prices"] = PRICES.write(policy.prices)
    return data


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
