"""From the files of envoyproxy/ratelimit to an `EnvoyConfig`, or to all that is wrong with them.

What the original takes is taken, except what can only be a mistake: the same key twice in a
mapping, a second document in a file. What it takes and then ignores is a warning here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.document import Listing, Scalar, Table, parse_text, record
from headgate.policy.envoy_config.config import (
    UNIT_SECONDS,
    WILDCARD,
    Descriptor,
    Domain,
    EnvoyConfig,
    Origin,
    RateLimit,
    warn_of_unknown_names,
)
from headgate.policy.fields import FieldError, expected, not_among
from headgate.policy.problems import Diagnostics, Place, PolicyError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.policy.document import Node
    from headgate.policy.envoy_config.config import Unit
    from headgate.policy.problems import Problem


# Single values as the original reads them: with YAML 1.1, and leniently where it is lenient.
#
# Nothing (`key:`) is as good as leaving the field out.


@dataclass(frozen=True, slots=True)
class Spot:
    """A value of a file: *node* at *path* below *root*.

    Methods that read it report what is wrong, and then return what a missing value means.
    """

    diagnostics: Diagnostics
    root: Node
    node: Node
    path: tuple[str | int, ...] = ()

    def report(self, message: str, **details: Any) -> None:
        """Report an error of this value; *details* as of `FieldError`."""
        self.report_error(FieldError(message, **details))

    def warn(self, message: str, **details: Any) -> None:
        self.report(message, severity="warning", **details)

    def report_error(self, error: FieldError) -> None:
        record(self.diagnostics, self.root, error, (*self.path, *error.path))

    def missing(self, name: str, message: str) -> None:
        self.report(message, path=(name,), at_parent=True)

    @property
    def origin(self) -> Origin:
        return Origin(self.diagnostics.where, self.node.place.line, self.node.place.column)

    def child(self, step: str | int, node: Node) -> Spot:
        return Spot(self.diagnostics, self.root, node, (*self.path, step))

    def has_fields(self, known: tuple[str, ...], what: str) -> bool:
        """True if it is a mapping; a field that is not *known* is reported."""
        if not isinstance(self.node, Table):
            what = f"{what}: a mapping with {', '.join(known)}"
            self.report_error(expected(self.node, what))
            return False
        for name, node in self.node.entries.items():
            if name in known:
                continue
            stray, home = self.child(name, node), _HOMES.get(name)
            if home is None:
                error = not_among(name, known, f"unknown field {quoted(name)}")
                error.at_key = True
                stray.report_error(error)
            else:
                hint = f"it belongs in {home}"
                stray.warn(f"{name!r} has no effect here", hint=hint, at_key=True)
        return True

    def get(self, name: str) -> Spot | None:
        """The field *name*; None if it is missing, or has nothing in it."""
        node = self.node.entries.get(name) if isinstance(self.node, Table) else None
        return None if node is None or _is_null(node) else self.child(name, node)

    def items(self, name: str, what: str) -> Iterator[Spot]:
        """The items of the list *name*."""
        spot = self.get(name)
        if spot is not None and isinstance(spot.node, Listing):
            yield from (spot.child(number, item) for number, item in enumerate(spot.node.items))
        elif spot is not None:
            spot.report_error(expected(spot.node, f"a list of {what}"))

    def text(self, name: str, what: str) -> str | None:
        """A text; a whole number or a boolean is taken as it is written, None for an empty one."""
        spot = self.get(name)
        if spot is None:
            return None
        node = spot.node
        if not isinstance(node, Scalar):
            spot.report_error(expected(node, what))
        elif _number(node) is not None and not isinstance(_number(node), int):
            spot.report(f"found {node.text}, a number with a fraction", hint="put it in quotes")
        else:
            return node.text or None
        return None

    def boolean(self, name: str) -> bool:
        """True or false, or yes and no, on and off, y and n."""
        spot = self.get(name)
        if spot is None:
            return False
        value = _boolean(spot.node) if isinstance(spot.node, Scalar) else None
        if value is None:
            spot.report_error(expected(spot.node, "true or false"))
        return bool(value)

    def requests(self, name: str) -> int:
        """A number of requests of at most 32 bits."""
        spot = self.get(name)
        if spot is None:
            return 0
        node = spot.node
        count = _number(node) if isinstance(node, Scalar) else None
        if not isinstance(count, int) or not 0 <= count <= MOST_REQUESTS:
            spot.report_error(expected(node, f"a whole number from 0 to {MOST_REQUESTS}"))
            return 0
        if isinstance(node, Scalar) and len(node.text) > 1 and node.text.startswith("0"):
            spot.warn(f"{node.text} is read as {count}", hint="write it in decimal")
        return count

    def metadata(self, name: str) -> Mapping[str, object]:
        """Any mapping, as plain data that cannot be changed."""
        spot = self.get(name)
        if spot is not None and isinstance(spot.node, Table):
            return _table(spot.node)
        if spot is not None:
            spot.report_error(expected(spot.node, "a mapping"))
        return MappingProxyType({})


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


def _is_null(node: Node) -> bool:
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
_FLAGS: Final = (
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
)
DESCRIPTOR_FIELDS: Final = ("key", "value", "rate_limit", "descriptors", *_FLAGS, "metadata")
LIMIT_FIELDS: Final = ("unit", "requests_per_unit", "unlimited", "name", "replaces")

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
    levels: dict[str, _Level] = {}
    origins: dict[str, Origin] = {}
    problems: list[Problem] = []
    for where, text in files:
        diagnostics = Diagnostics(where)
        try:
            spot = _parsed(text, diagnostics)
            if spot.has_fields(ROOT_FIELDS, "a domain"):
                _read_level(spot, _level_of(spot, levels, origins, merge_domains=merge_domains))
        except PolicyError as error:
            problems += error.problems
        else:
            problems += diagnostics.problems()
    if any(problem.severity == "error" for problem in problems):
        raise PolicyError(problems)
    domains = {name: Domain(name, tuple(level.values())) for name, level in levels.items()}
    for domain in domains.values():
        problems += warn_of_unknown_names(domain)
    return EnvoyConfig(MappingProxyType(domains), tuple(problems))


_Level = dict[str, Descriptor]
"""The descriptors of one level by their names."""


def _parsed(text: str | bytes, diagnostics: Diagnostics) -> Spot:
    lines = (line.strip() for line in text.splitlines()) if isinstance(text, str) else ("bytes",)
    if all(not line or line.startswith("#") for line in lines):
        diagnostics.stop(Place(1, 1), "there is nothing in it; expected domain and descriptors")
    root = parse_text(text, diagnostics)
    return Spot(diagnostics, root, root)


def _level_of(
    root: Spot, levels: dict[str, _Level], origins: dict[str, Origin], *, merge_domains: bool
) -> _Level:
    """The level that the descriptors of a file belong to."""
    name, spot = root.text("domain", "the name of the domain"), root.get("domain")
    if name is None or spot is None:
        root.missing("domain", "missing or empty; expected the name of the domain")
        return {}
    first = origins.setdefault(name, spot.origin)
    if name in levels and not merge_domains:
        message = f"the domain {quoted(name)} is in {first.where} already"
        spot.report(message, hint="put both in one file, or merge domains")
        return {}
    return levels.setdefault(name, {})


def _read_level(spot: Spot, level: _Level) -> None:
    """Add the descriptors that *spot* has to *level*."""
    for child in spot.items("descriptors", "descriptors"):
        descriptor = _read_descriptor(child)
        if descriptor is None:
            continue
        first = level.setdefault(descriptor.name, descriptor)
        if first is not descriptor:
            at = f"{first.origin.where}:{first.origin.line}"
            child.report(f"{quoted(descriptor.name)} is described twice; the first is at {at}")


def _read_descriptor(spot: Spot) -> Descriptor | None:
    if not spot.has_fields(DESCRIPTOR_FIELDS, "a descriptor"):
        return None
    key = spot.text("key", "the key of a descriptor")
    below: _Level = {}
    _read_level(spot, below)
    descriptor = Descriptor(
        key=key or "",
        value=spot.text("value", "the value of a descriptor"),
        rate_limit=_read_limit(spot.get("rate_limit")),
        descriptors=tuple(below.values()),
        **{name: spot.boolean(name) for name in _FLAGS},
        metadata=spot.metadata("metadata"),
        origin=spot.origin,
    )
    if key is None:
        spot.missing("key", "missing or empty; expected the key of a descriptor")
        return None
    sharing = spot.get("share_threshold")
    if sharing is not None and descriptor.share_threshold and not descriptor.is_pattern:
        name = quoted(descriptor.name)
        message = f"there is no {WILDCARD!r} in {name}: nothing can share its limit"
        sharing.report(
            message, hint=f"give a value with {WILDCARD!r}, or leave share_threshold out"
        )
    return descriptor


def _read_limit(spot: Spot | None) -> RateLimit | None:
    if spot is None or not spot.has_fields(LIMIT_FIELDS, "a limit"):
        return None
    name = spot.text("name", "the name of a limit")
    replaces = _read_replaces(spot, name)
    given = spot.get("unit")
    word = given.node.text if given is not None and isinstance(given.node, Scalar) else None
    unit = _UNITS.get((word or "").lower())
    if spot.boolean("unlimited"):
        _check_unlimited(spot, unit)
        return RateLimit(name=name, replaces=replaces)
    if given is None:
        spot.missing("unit", f"missing; expected one of {', '.join(_UNITS)}")
    elif word is None:
        given.report_error(expected(given.node, f"one of {', '.join(_UNITS)}"))
    elif unit is None:
        given.report_error(not_among(word, _UNITS, f"{quoted(word)} is not a unit"))
    elif spot.get("requests_per_unit") is None:
        message = "requests_per_unit is missing: it is read as 0, and nothing passes"
        spot.warn(message, hint="write 0 if that is meant")
    return RateLimit(unit, spot.requests("requests_per_unit"), name, replaces)


def _check_unlimited(limit: Spot, unit: Unit | None) -> None:
    for name in ("unit", "requests_per_unit"):
        spot = limit.get(name)
        if spot is None:
            continue
        if name == "unit" and unit is not None:
            spot.report("what is unlimited has no unit", hint="leave out either of them")
        else:
            spot.warn("what is unlimited has no rate: this has no effect", hint="leave it out")


def _read_replaces(limit: Spot, own_name: str | None) -> tuple[str, ...]:
    """The names of the limits that this one replaces."""
    names = []
    for child in limit.items("replaces", "mappings with a name"):
        if not child.has_fields(("name",), "what is replaced"):
            continue
        name = child.text("name", "the name of a limit")
        if name is None:
            child.missing("name", "missing or empty; expected the name of a limit")
        elif name == own_name:
            child.report(f"the limit {quoted(name)} replaces itself")
        else:
            names.append(name)
    return tuple(names)
