"""From the files of envoyproxy/ratelimit to an `EnvoyConfig`, or to all that is wrong with them.

What the original takes is taken, except what can only be a mistake: the same key twice in a
mapping, a second document in a file. What it takes and then ignores is a warning here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.policy.document import Listing, Scalar, Table, parse_text, record
from headgate.policy.envoy_config.config import EnvoyConfig
from headgate.policy.envoy_config.model import (
    UNIT_SECONDS,
    WILDCARD,
    Descriptor,
    Domain,
    Origin,
    RateLimit,
    warn_of_unknown_names,
)
from headgate.policy.fields import FieldError, expected, not_among
from headgate.policy.problems import Diagnostics, Place, PolicyError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.policy.document import Node
    from headgate.policy.envoy_config.model import Unit
    from headgate.policy.problems import Problem


# Single values as the original reads them: with YAML 1.1, and leniently where it is lenient.
#
# Every reader takes the `Spot` of a value, notes what is wrong with it and then answers as if it
# were not there. Nothing (`key:`) is as good as leaving the field out.


@dataclass(frozen=True, slots=True)
class Spot:
    """A value of a file: the node at *path* below *root*."""

    diagnostics: Diagnostics
    root: Node
    path: tuple[str | int, ...] = ()
    value: Node | None = None

    @property
    def node(self) -> Node:
        return self.root if self.value is None else self.value

    def report(self, flaw: FieldError) -> None:
        record(self.diagnostics, self.root, flaw, (*self.path, *flaw.path))

    def wrong(self, message: str, *, hint: str = "") -> None:
        self.report(FieldError(message, hint=hint))

    def warn(self, message: str, *, hint: str = "", at_key: bool = False) -> None:
        self.report(FieldError(message, hint=hint, at_key=at_key, severity="warning"))

    def expected(self, what: str) -> None:
        self.report(expected(self.node, what))

    def missing(self, name: str, message: str) -> None:
        self.report(FieldError(message, path=(name,), at_parent=True))

    def child(self, step: str | int, node: Node) -> Spot:
        return Spot(self.diagnostics, self.root, (*self.path, step), node)


MOST_REQUESTS: Final = 2**32 - 1

_BOOLEANS: Final = {
    spelled: word in ("y", "yes", "on", "true")
    for word in ("y", "yes", "on", "true", "n", "no", "off", "false")
    for spelled in (word, word.capitalize(), word.upper())
}
_WHOLE: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9_]*|(?P<octal>0[0-7_]+)|0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+)"
)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?|[+-]?\.(?:inf|nan)", re.I
)
_LONGEST_NUMBER: Final = 100


def text(spot: Spot, what: str) -> str | None:
    """A text; a whole number or a boolean is taken as it is written, None for an empty one."""
    node = spot.node
    if not isinstance(node, Scalar):
        spot.expected(what)
    elif _number(node) is not None and not isinstance(_number(node), int):
        spot.wrong(f"found {node.text}, a number with a fraction", hint="put it in quotes")
    elif not node.is_null:
        return node.text or None
    return None


def boolean(spot: Spot) -> bool:
    """True or false, or yes and no, on and off, y and n."""
    node = spot.node
    said = _boolean(node) if isinstance(node, Scalar) else None
    if said is None and not is_nothing(node):
        spot.expected("true or false")
    return bool(said)


def requests(spot: Spot) -> int:
    """A number of requests of at most 32 bits."""
    node = spot.node
    count = _number(node) if isinstance(node, Scalar) else None
    if isinstance(count, int) and 0 <= count <= MOST_REQUESTS:
        if isinstance(node, Scalar) and len(node.text) > 1 and node.text.startswith("0"):
            spot.warn(f"{node.text} is read as {count}", hint="write it in decimal")
        return count
    if not is_nothing(node):
        spot.expected(f"a whole number from 0 to {MOST_REQUESTS}")
    return 0


def metadata(spot: Spot) -> Mapping[str, object]:
    """Any mapping, as plain data that cannot be changed."""
    if isinstance(spot.node, Table):
        return _table(spot.node)
    if not is_nothing(spot.node):
        spot.expected("a mapping")
    return MappingProxyType({})


def is_nothing(node: Node) -> bool:
    """True if there is only a name and nothing under it."""
    return isinstance(node, Scalar) and node.is_null


def _boolean(node: Scalar) -> bool | None:
    return _BOOLEANS.get(node.text) if node.is_plain else None


def _number(node: Scalar) -> int | float | None:
    """The number that a plain scalar is, None if it is none."""
    if not node.is_plain or len(node.text) > _LONGEST_NUMBER:
        return None
    whole = _WHOLE.fullmatch(node.text)
    if whole is not None:
        return _whole(node.text.replace("_", ""), is_octal=whole["octal"] is not None)
    if _DECIMAL.fullmatch(node.text):
        return float(node.text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    return None


def _whole(digits: str, *, is_octal: bool) -> int | float | None:
    try:
        number = int(digits, 8 if is_octal else 0)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else float(number)


def _plain(node: Node) -> object:
    match node:
        case Table():
            return _table(node)
        case Listing():
            return tuple(_plain(item) for item in node.items)
    if node.is_null:
        return None
    meant = (_boolean(node), _number(node), node.text)
    return next(each for each in meant if each is not None)


def _table(table: Table) -> Mapping[str, object]:
    return MappingProxyType({name: _plain(node) for name, node in table.entries.items()})


ROOT_FIELDS: Final = ("domain", "descriptors")
DESCRIPTOR_FIELDS: Final = (
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
)
LIMIT_FIELDS: Final = ("unit", "requests_per_unit", "unlimited", "name", "replaces")
REPLACES_FIELDS: Final = ("name",)

_HOMES: Final = {
    **dict.fromkeys(LIMIT_FIELDS, "rate_limit"),
    **dict.fromkeys(DESCRIPTOR_FIELDS, "a descriptor"),
    "domain": "the top of the file",
}
"""Where each field belongs. The original takes all of them everywhere."""

_UNITS: Final[dict[str, Unit]] = {unit: unit for unit in UNIT_SECONDS}


def read_envoy_config(
    files: Iterable[tuple[str, str | bytes]], *, merge_domains: bool = False
) -> EnvoyConfig:
    """The configuration that *files* have together, each given as its name and its text.

    With *merge_domains* several files may have descriptors for one domain, as with the original's
    MERGE_DOMAIN_CONFIG. Raises `PolicyError` with every problem of every file.
    """
    reader = _Reader(merge_domains=merge_domains)
    problems: list[Problem] = []
    for where, text in files:
        diagnostics = Diagnostics(where)
        try:
            reader.read(text, diagnostics)
        except PolicyError as error:
            problems += error.problems
        else:
            problems += diagnostics.problems()
    if any(problem.severity == "error" for problem in problems):
        raise PolicyError(problems)
    domains = {name: Domain(name, tuple(level.values())) for name, level in reader.domains.items()}
    problems += warn_of_unknown_names(domains.values())
    return EnvoyConfig(MappingProxyType(domains), tuple(problems))


_Level = dict[str, Descriptor]
"""The descriptors of one level by their names."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """A mapping, with what is not to be in it noted. Fields with nothing in them are left out."""

    spot: Spot
    table: Table

    @classmethod
    def of(cls, spot: Spot, known: tuple[str, ...], what: str) -> _Fields | None:
        if not isinstance(spot.node, Table):
            spot.expected(f"{what}: a mapping with {', '.join(known)}")
            return None
        for name, node in spot.node.entries.items():
            if name not in known:
                _report_stray(spot.child(name, node), name, known)
        return cls(spot, spot.node)

    def get(self, name: str) -> Spot | None:
        node = self.table.entries.get(name)
        return None if node is None or is_nothing(node) else self.spot.child(name, node)

    def text(self, name: str, what: str) -> str | None:
        spot = self.get(name)
        return None if spot is None else text(spot, what)

    def boolean(self, name: str) -> bool:
        spot = self.get(name)
        return spot is not None and boolean(spot)


def _report_stray(spot: Spot, name: str, known: tuple[str, ...]) -> None:
    """Report a field that is not to be here, at its key."""
    home = _HOMES.get(name)
    if home is None:
        flaw = not_among(name, known, f"unknown field {quoted(name)}")
        flaw.at_key = True
        spot.report(flaw)
    else:
        spot.warn(f"{name!r} has no effect here", hint=f"it belongs in {home}", at_key=True)


class _Reader:
    """Reads one file after the other; `domains` has the descriptors of each domain."""

    def __init__(self, *, merge_domains: bool) -> None:
        self._merge_domains = merge_domains
        self._origins: dict[str, Origin] = {}
        self.domains: dict[str, _Level] = {}

    def read(self, text: str | bytes, diagnostics: Diagnostics) -> None:
        """Take one file in. Raises `PolicyError` if it cannot be read at all."""
        if isinstance(text, str) and _is_empty(text):
            diagnostics.stop(Place(1, 1), "there is nothing in it; expected domain and descriptors")
        fields = _Fields.of(
            Spot(diagnostics, parse_text(text, diagnostics)), ROOT_FIELDS, "a domain"
        )
        if fields is None:
            return
        _read_level(fields, self._level(fields))

    def _level(self, fields: _Fields) -> _Level:
        """Where the descriptors of this file belong."""
        name = fields.text("domain", "the name of the domain")
        spot = fields.get("domain")
        if name is None or spot is None:
            fields.spot.missing("domain", "missing or empty; expected the name of the domain")
            return {}
        first = self._origins.setdefault(name, _origin(spot))
        if name in self.domains and not self._merge_domains:
            message = f"the domain {quoted(name)} is in {first.where} already"
            spot.wrong(message, hint="put both in one file, or merge domains")
            return {}
        return self.domains.setdefault(name, {})


def _is_empty(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return all(not line or line.startswith("#") for line in lines)


def _origin(spot: Spot) -> Origin:
    return Origin(spot.diagnostics.where, spot.node.place.line, spot.node.place.column)


def _read_level(fields: _Fields, level: _Level) -> None:
    """Add the descriptors that *fields* has to *level*."""
    spot = fields.get("descriptors")
    for child in _items(spot, "descriptors"):
        descriptor = _read_descriptor(child)
        if descriptor is None:
            continue
        first = level.setdefault(descriptor.name, descriptor)
        if first is not descriptor:
            at = f"{first.origin.where}:{first.origin.line}"
            child.wrong(f"{quoted(descriptor.name)} is described twice; the first is at {at}")


def _items(spot: Spot | None, what: str) -> Iterator[Spot]:
    if spot is not None and isinstance(spot.node, Listing):
        yield from (spot.child(number, item) for number, item in enumerate(spot.node.items))
    elif spot is not None:
        spot.expected(f"a list of {what}")


def _read_descriptor(spot: Spot) -> Descriptor | None:
    fields = _Fields.of(spot, DESCRIPTOR_FIELDS, "a descriptor")
    if fields is None:
        return None
    key = fields.text("key", "the key of a descriptor")
    below: _Level = {}
    _read_level(fields, below)
    meta = fields.get("metadata")
    descriptor = Descriptor(
        key=key or "",
        value=fields.text("value", "the value of a descriptor"),
        rate_limit=_read_limit(fields.get("rate_limit")),
        descriptors=tuple(below.values()),
        shadow_mode=fields.boolean("shadow_mode"),
        quota_mode=fields.boolean("quota_mode"),
        detailed_metric=fields.boolean("detailed_metric"),
        value_to_metric=fields.boolean("value_to_metric"),
        share_threshold=fields.boolean("share_threshold"),
        metadata=MappingProxyType({}) if meta is None else metadata(meta),
        origin=_origin(spot),
    )
    if key is None:
        spot.missing("key", "missing or empty; expected the key of a descriptor")
        return None
    _check_sharing(fields, descriptor)
    return descriptor


def _check_sharing(fields: _Fields, descriptor: Descriptor) -> None:
    spot = fields.get("share_threshold")
    if spot is not None and descriptor.share_threshold and not descriptor.is_pattern:
        name = quoted(descriptor.name)
        message = f"there is no {WILDCARD!r} in {name}: nothing can share its limit"
        spot.wrong(message, hint=f"give a value with {WILDCARD!r}, or leave share_threshold out")


def _read_limit(spot: Spot | None) -> RateLimit | None:
    fields = None if spot is None else _Fields.of(spot, LIMIT_FIELDS, "a limit")
    if fields is None:
        return None
    name = fields.text("name", "the name of a limit")
    replaces = _read_replaces(fields, name)
    unit, count = _read_unit(fields), fields.get("requests_per_unit")
    if fields.boolean("unlimited"):
        _check_unlimited(fields, unit)
        return RateLimit(name=name, replaces=replaces)
    if unit is None:
        _report_unit(fields)
    elif count is None:
        message = "requests_per_unit is missing: it is read as 0, and nothing passes"
        fields.spot.warn(message, hint="write 0 if that is meant")
    return RateLimit(unit, 0 if count is None else requests(count), name, replaces)


def _read_unit(fields: _Fields) -> Unit | None:
    spot = fields.get("unit")
    word = spot.node.text if spot is not None and isinstance(spot.node, Scalar) else ""
    return _UNITS.get(word.lower())


def _report_unit(fields: _Fields) -> None:
    spot = fields.get("unit")
    if spot is None:
        fields.spot.missing("unit", f"missing; expected one of {', '.join(_UNITS)}")
    elif isinstance(spot.node, Scalar):
        text = spot.node.text
        spot.report(not_among(text, _UNITS, f"{quoted(text)} is not a unit"))
    else:
        spot.expected(f"one of {', '.join(_UNITS)}")


def _check_unlimited(fields: _Fields, unit: Unit | None) -> None:
    for name in ("unit", "requests_per_unit"):
        spot = fields.get(name)
        if spot is None:
            continue
        if name == "unit" and unit is not None:
            spot.wrong("what is unlimited has no unit", hint="leave out either of them")
        else:
            spot.warn("what is unlimited has no rate: this has no effect", hint="leave it out")


def _read_replaces(fields: _Fields, own_name: str | None) -> tuple[str, ...]:
    """The names of the limits that this one replaces."""
    names = []
    for child in _items(fields.get("replaces"), "mappings with a name"):
        entry = _Fields.of(child, REPLACES_FIELDS, "what is replaced")
        if entry is None:
            continue
        name = entry.text("name", "the name of a limit")
        if name is None:
            child.missing("name", "missing or empty; expected the name of a limit")
        elif name == own_name:
            child.wrong(f"the limit {quoted(name)} replaces itself")
        else:
            names.append(name)
    return tuple(names)
