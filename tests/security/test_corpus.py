"""The corpus, and the judge: one that sees no escape would be of no use."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.support.integrations.http_servers import UvicornServer
from tests.support.security.apps import asgi_echo
from tests.support.security.corpus import FOLDER, groups
from tests.support.security.exceptions import known_escapes
from tests.support.security.readings import LIMIT, Journal
from tests.support.security.targets import GATEWAYS, INTEGRATIONS
from tests.support.security.trial import Target, tried


def test_the_corpus_has_at_least_800_entries_with_names_of_their_own() -> None:
    found = groups()
    assert sum(len(group.entries) for group in found.values()) >= 800
    for group in found.values():
        names = Counter(entry.name for entry in group.entries)
        assert [name for name, count in names.items() if count > 1] == []


def test_the_figures_in_the_docs_are_those_of_the_corpus() -> None:
    sizes = {name: len(group.entries) for name, group in groups().items()}
    page = (FOLDER.parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert f" {sum(sizes.values())} spellings" in page
    rows = re.findall(r"^\| (`.*`) \| (\d+) \|", page, re.MULTILINE)
    told = [(re.findall(r"`(\w+)`", names), int(count)) for names, count in rows]
    assert sorted(name for names, _ in told for name in names) == sorted(sizes)
    assert [sum(sizes[name] for name in names) for names, _ in told] == [n for _, n in told]


def test_every_exception_names_a_target_and_an_entry_and_has_a_reason() -> None:
    found = groups()
    for (target, group), reasons in known_escapes().items():
        assert target in (*INTEGRATIONS, *GATEWAYS)
        assert reasons.keys() <= {entry.name for entry in found[group].entries}
        assert all(reasons.values())


def _naive(app: Any) -> Any:
    """A limit by the texts of a request as they are: what Headgate must not be."""
    used: Counter[object] = Counter()

    async def limited(scope: Any, receive: Any, send: Any) -> None:
        lines = [line for line in scope["headers"] if line[0] != b"x-entry"]
        key = (scope["method"], scope["raw_path"], *lines)
        used[key] += 1
        if used[key] <= LIMIT:
            await app(scope, receive, send)
            return
        denial = {"type": "http.response.start", "status": 429, "headers": []}
        await send({**denial, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    return limited


def test_a_limit_by_raw_texts_is_judged_to_have_escapes() -> None:
    journal = Journal()
    server = UvicornServer(_naive(asgi_echo(journal)), has_lifespan=False, http="h11")
    try:
        target = Target("naive", server.port, journal)
        found = {name: tried(target, group).escapes for name, group in groups().items()}
    finally:
        server.close()
    assert {"first letter encoded", "all letters encoded"} <= found["path"].keys()
    assert {"invented one first", "octal letters in quotes"} <= found["session"].keys()
    assert {"forged address", "forged chain"} <= found["address"].keys()
    assert {"invented port", "invented value first"} <= found["host"].keys() | found["user"].keys()
    assert "very many lines" in found["framing"]
    assert sum(map(len, found.values())) > 100
