"""Revisions as they are kept."""

from __future__ import annotations

import gc
import json

import pytest

from headgate.control.revision import (
    Change,
    Revision,
    SourceError,
    collector_paused,
    revision_from_json,
)

_CHANGE = b'{"author": "", "time_ns": 0, "what": ""}'


def test_a_revision_is_read_as_it_was_written() -> None:
    document = {"version": 1, "rules": [{"id": "läuft", "limit": "5/s"}]}
    revision = Revision(7, document, {"läuft": 7}, Change("ada", 1_700_000_000_000_000_001, "put"))
    assert revision_from_json(revision.to_json()) == revision


def test_what_a_newer_version_says_besides_is_passed_over() -> None:
    revision = Revision(7, {"version": 1, "rules": []}, {}, Change("ada", 1, "put", "why"))
    data = json.loads(revision.to_json())
    data["change"]["ticket"] = data["signature"] = "new"
    assert revision_from_json(json.dumps(data).encode()) == revision


def test_the_first_revision_is_an_empty_policy() -> None:
    assert dict(Revision(0).document) == {"version": 1, "rules": []}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"number": 1, "document": {}, "versions": {}}',
        b'{"number": "1", "document": {}, "versions": {}, "change": %b}' % _CHANGE,
        b'{"number": 1, "document": [], "versions": {}, "change": %b}' % _CHANGE,
        b'{"number": 1, "document": {}, "versions": {}, "change": {"who": ""}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_revision_is_refused(text: bytes) -> None:
    with pytest.raises(SourceError):
        revision_from_json(text)


def test_a_collection_after_a_pause_skips_what_was_made_meanwhile() -> None:
    replaced = [[] for _ in range(20_000)]  # type: ignore[var-annotated]
    gc.collect()
    with collector_paused():
        assert not gc.isenabled()
        made = [[] for _ in range(20_000)]  # type: ignore[var-annotated]
        del replaced
    assert gc.isenabled()
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation)}
    assert not young & {id(one) for one in made}
    assert gc.get_freeze_count() == 0


def test_a_pause_without_a_change_does_not_put_off_the_next_collection() -> None:
    gc.collect()
    made = [[] for _ in range(300)]  # type: ignore[var-annotated]
    with collector_paused():
        pass
    assert gc.get_count()[0] >= len(made)
