"""Documents: policies as data, read from the texts of files, and summaries of what differs.

A document is data as a JSON parser makes it. YAML keeps its shape, not its comments.
"""

from __future__ import annotations

import gc
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headgate.control.revision import Parsed
from headgate.policy.diagnostics import Diagnostics
from headgate.policy.document import Listing, Scalar, Table, parse_text
from headgate.policy.loader import examine_policies, examine_policy_data, policy_to_data
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headgate.control.revision import Revision
    from headgate.policy.document import Node

Data = dict[str, Any]

_NUMBER: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
)
_LONGEST_NUMBER: Final = 100


def parse_document(texts: Sequence[tuple[str, bytes]]) -> tuple[Data, Parsed]:
    """Read *texts* (each with its place) as one policy: the document, and what it means.

    Raises `PolicyError` with all that is wrong.
    """
    with collector_paused():
        return _parse_document(texts)


def _parse_document(texts: Sequence[tuple[str, bytes]]) -> tuple[Data, Parsed]:
    parsed = _parsed(texts)
    for plain in (_as_written, _as_meant):
        document = _merged(_grown(where, text, plain) for where, text in texts)
        if examine_policy_data(document).policy == parsed.config:
            return document, parsed
    # A plain scalar such as 1.50, which is a name in one place and a number in another.
    return policy_to_data(parsed.config), parsed


def parse_policy(texts: Sequence[tuple[str, bytes]]) -> tuple[Data, Parsed]:
    """Read *texts* as one policy, without a document: for sources that are not edited."""
    return {}, _parsed(texts)


def _parsed(texts: Sequence[tuple[str, bytes]]) -> Parsed:
    examined = examine_policies(texts)
    if examined.policy is None:
        raise PolicyError(examined.problems)
    return Parsed(examined.policy, examined.problems)


def rules_of(document: Mapping[str, Any]) -> list[Data]:
    """Return the rules of *document*, those that are mappings."""
    rules = document.get("rules")
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def rules_by_id(document: Mapping[str, Any]) -> dict[str, Data]:
    """Return the rules of *document* by their ids."""
    return {rule["id"]: rule for rule in rules_of(document) if isinstance(rule.get("id"), str)}


def versions_after(before: Revision, document: Mapping[str, Any], number: int) -> dict[str, int]:
    """Return the versions of the rules of *document*, the revision *number* after *before*."""
    old = rules_by_id(before.document)
    return {
        name: before.versions.get(name, number) if old.get(name) == rule else number
        for name, rule in rules_by_id(document).items()
    }


def summary_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Summarize the changes from one document to the next in a few words."""
    old, new = rules_by_id(before), rules_by_id(after)
    changed = [name for name in new if name in old and new[name] != old[name]]
    parts = [
        _counted("added", [name for name in new if name not in old]),
        _counted("changed", changed),
        _counted("removed", [name for name in old if name not in new]),
    ]
    if not any(parts) and list(old) != list(new):
        parts.append("the order of the rules")
    parts += [name for name in _BESIDES if before.get(name) != after.get(name)]
    return "; ".join(part for part in parts if part) or "nothing that matters"


_BESIDES: Final = ("identity", "overrides", "priority", "pressure")
"""Fields of a document besides rules."""

_MOST_NAMED: Final = 5


def _counted(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{what} {', '.join(names[:_MOST_NAMED])}{more}"


def _merged(documents: Iterable[Data]) -> Data:
    """Merge documents: lists one after the other, of the rest the first."""
    merged: Data = {}
    for document in documents:
        for name, value in document.items():
            if isinstance(value, list) and isinstance(merged.get(name), list):
                merged[name] = [*merged[name], *value]
            else:
                merged.setdefault(name, value)
    return merged


def data_of(where: str, text: bytes) -> Data:
    """Read *text* as a document: numbers where they would be written like that again."""
    with collector_paused():
        return _grown(where, text, _as_written)


_pauses: Final = threading.Semaphore()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from running while the tree of a text exists.

    A tree has 100,000 nodes and is freed by reference counts; a collection that goes through them
    stops all threads for 100 ms and more.
    """
    with _pauses:  # one at a time, so that the last one enables it again
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


def _grown(where: str, text: bytes, plain: Callable[[str], object]) -> Data:
    found = _data(parse_text(text, Diagnostics(where)), plain)
    return found if isinstance(found, dict) else {}


def _data(node: Node, plain: Callable[[str], object]) -> object:
    """Return the data of a tree, which is not deep."""
    match node:
        case Table():
            return {name: _data(one, plain) for name, one in node.entries.items()}
        case Listing():
            return [_data(one, plain) for one in node.items]
        case Scalar(is_plain=False):
            return node.text
        case Scalar(is_null=True):
            return None
    return plain(node.text) if node.boolean is None else node.boolean


def _as_written(text: str) -> object:
    """Read a number only if it would be written like that again."""
    value = _as_meant(text)
    return value if str(value) == text else text


def _as_meant(text: str) -> object:
    """Read a number wherever it can be one."""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return text
    digits = text.replace("_", "")
    return int(digits) if digits.lstrip("+-").isdigit() else float(digits)
