"""What the service tells of itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate import __version__
from headgate.control.editor import PolicyEditor, Wish
from headgate.control.feed import FeedState, PolicyFeed
from headgate.control.storage import MemoryStorage
from headgate.observability import Measures
from headgate.policy.loader import read_policy
from headgate.policy.model import Policy
from headgate.policy.problems import Problem
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.live import ServiceMeasures
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BAD = (Problem("error", "a file", "it is no policy"),)


@asynccontextmanager
async def closing_engine() -> AsyncIterator[AsyncRuleEngine]:
    engine = AsyncRuleEngine(Policy())
    try:
        yield engine
    finally:
        await engine.aclose()


def told(measures: Measures, *names: str) -> list[float]:
    return [measures.value(name) for name in names]


def errors(measures: Measures) -> float:
    return measures.value("policy_load_errors", what="rules")


def test_a_policy_that_is_in_force_is_told() -> None:
    async def run() -> None:
        measures = Measures()
        async with closing_engine() as engine:
            own = ServiceMeasures(engine, began_ns=7 * SECOND, measures=measures)
            storage = MemoryStorage()
            rules = [{"id": "a", "key_by": "ip", "limit": "5/s"}]
            await PolicyEditor(storage).replace({"version": 1, "rules": rules}, Wish(author="eve"))
            assert told(measures, "policy_revision", "policy_rules") == [0, 0]
            async with PolicyFeed(storage, engine.replace, on_change=own.changed):
                assert told(measures, "policy_revision", "policy_rules") == [1, 1]
            assert told(measures, "policy_stale", "policy_refused") == [0, 0]
            assert measures.value("build_info", version=__version__) == 1
            assert measures.value("start_time_seconds") == 7

    asyncio.run(run())


def test_what_cannot_be_put_in_force_is_counted_once_each() -> None:
    async def run() -> None:
        measures = Measures()
        async with closing_engine() as engine:
            own = ServiceMeasures(engine, began_ns=0, measures=measures)
            good = FeedState(revision=3)
            own.changed(good)
            assert errors(measures) == 0
            refused = replace(good, problems=BAD, refused=4, failures=1)
            own.changed(refused)
            own.changed(replace(refused, is_stale=True, trouble="no answer"))
            assert errors(measures) == 1
            assert told(measures, "policy_stale", "policy_refused") == [1, 1]
            own.changed(good)
            own.changed(replace(good, problems=BAD, is_stale=True, trouble="a file: no policy"))
            assert errors(measures) == 2
            own.changed(replace(good, is_stale=True, trouble="no answer"))
            assert errors(measures) == 2
            assert told(measures, "policy_stale", "policy_refused") == [1, 0]
            kept = replace(good, failures=1)
            own.changed(kept)
            own.changed(replace(kept, problems=BAD, refused=4))
            assert errors(measures) == 3, "the one that was refused, once"

    asyncio.run(run())


def test_equal_policies_have_equal_digests_whatever_their_revisions() -> None:
    text = "version: 1\nrules: [{id: a, key_by: ip, limit: %s}]\n"

    async def digest(limit: str, revision: int) -> float:
        measures = Measures()
        async with closing_engine() as engine:
            own = ServiceMeasures(engine, began_ns=0, measures=measures)
            engine.replace(replace(read_policy(text % limit), revision=revision))
            assert own.digest() == own.digest() == int(own.digest()) < 2**53
            return measures.value("policy_digest")

    async def run() -> None:
        assert await digest("5/s", 7) == await digest("5/s", 1) != await digest("6/s", 7)

    asyncio.run(run())
