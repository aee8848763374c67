"""A policy as a source keeps it: its document, a number that grows, and who changed what when.

    revision 12                      the number: one more with every change
    ├── document                     what was written: version, identity, rules, overrides
    ├── versions: {login: 7, ...}    for each rule the revision that last changed it
    └── change                       who, when, what

The document is what people wrote, not what was read from it: a GET returns what was PUT. A rule's
version is the revision that changed it last, so a rule that is deleted and created again never has
an old version again.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.policy.problems import Problem

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({"version": 1, "rules": []})
"""The document of a policy without rules."""


class ControlError(HeadgateError):
    """The policy could not be read or changed."""


class ConflictError(ControlError):
    """Another change came first; nothing was changed."""


class UnknownRevisionError(ControlError):
    """A revision that does not exist, or is no longer kept."""


class ReadOnlyError(ControlError):
    """The source does not accept changes."""


class SourceError(ControlError):
    """The source cannot be reached or read. The outcome of a pending change is not known."""


@dataclass(frozen=True, slots=True)
class Change:
    """The author, the time (nanoseconds since the epoch) and a summary (`put rule login`)."""

    author: str
    time_ns: int
    what: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A configuration that was read and validated, with the warnings about it."""

    config: Any
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Revision:
    """The policy at one time. Number 0 means that nothing has been written yet.

    *parsed* is the result of validating the document, where that was done already. *text* is the
    content of its file, *fingerprint* identifies that: equal on all machines that have the same
    files.
    """

    number: int
    document: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    versions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    change: Change = Change("", 0, "nothing yet")
    parsed: Parsed | None = field(default=None, compare=False, repr=False)
    fingerprint: str | None = field(default=None, compare=False, repr=False)
    text: bytes | None = field(default=None, compare=False, repr=False)

    def version_of(self, rule_id: str) -> int:
        """Return the version of a rule: the revision that changed it last."""
        return self.versions.get(rule_id, self.number)

    def to_json(self) -> bytes:
        """Encode the revision for storage; `revision_from_json` decodes it."""
        data = {
            "number": self.number,
            "document": self.document,
            "versions": dict(self.versions),
            "change": asdict(self.change),
        }
        return json_text(data).encode("ascii")


_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


def json_text(data: Mapping[str, Any]) -> str:
    """Encode *data* in small steps: one call for 9,000 rules keeps other threads waiting 20 ms."""
    members = [f"{_ENCODE(name)}:{_in_steps(value)}" for name, value in data.items()]
    return f"{{{','.join(members)}}}"


def _in_steps(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_ENCODE, value))}]"
    return json_text(value) if isinstance(value, Mapping) else _ENCODE(value)


def revision_from_json(text: bytes) -> Revision:
    """Decode a revision. Raises `SourceError` if *text* is not a revision.

    Members that a newer Headgate may have added are ignored: while a fleet is upgraded, both
    versions read the same revisions.
    """
    try:
        return revision_from_data(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"the stored data is not a revision: {error}") from error


def revision_from_data(data: Any) -> Revision:
    """Return the revision that *data* describes. Raises `SourceError` if it is not one."""
    try:
        found = data["change"]
        change = Change(found["author"], found["time_ns"], found["what"], found.get("note", ""))
        number, document, versions = data["number"], data["document"], data["versions"]
        is_sound = isinstance(document, dict) and isinstance(versions, dict)
        if not is_sound or not isinstance(number, int) or not isinstance(change.time_ns, int):
            raise SourceError("the stored revision has an unknown shape")
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"the stored data is not a revision: {error}") from error
    return Revision(number, document, versions, change)


class _Pauses:
    """The changes in progress, for which the garbage collector is paused."""

    lock = threading.Lock()
    count = 0
    was_enabled = True
    young = 0
    """The young objects when the first of them began."""


_MANY: Final = 10_000
"""A collection goes through so many objects in a few milliseconds."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from running while a policy is read, validated and compiled.

    That makes some 100,000 objects, which reference counts free again; a collection that goes
    through them stops all threads for 100 ms and more. Freezing and unfreezing moves them to the
    oldest generation, so that the next collections do not go through them either.

    That also makes the collector count from zero again. So it happens only after a change that made
    many objects: else each look at an unchanged policy would put off the next collection, and there
    would never be one.
    """
    with _Pauses.lock:
        if _Pauses.count == 0:
            _Pauses.was_enabled = gc.isenabled()
            gc.disable()
            _Pauses.young = _young()
        _Pauses.count += 1
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if _Pauses.count == 0 and _Pauses.was_enabled:
                if _young() - _Pauses.young > _MANY:
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


def _young() -> int:
    """The objects that the next collection goes through.

    Not `gc.get_count`: that is less by the objects of the replaced policy, which were freed.
    """
    return len(gc.get_objects(generation=0))
