"""What the service tells of itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headgate import __version__
from headgate.control.editor import EditRequest, PolicyEditor
from headgate.control.edits import replace_policy
from headgate.control.source import MemorySource
from headgate.control.watcher import PolicyWatcher
from headgate.observability import MetricRegistry
from headgate.policy.loader import read_policy
from headgate.policy.model import Policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.live import ServiceMeasures
from headgate.units import SECOND
from tests.support.shaky_source import ShakySource, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def closing_engine() -> AsyncIterator[AsyncRuleEngine]:
    engine = AsyncRuleEngine(Policy())
    try:
        yield engine
    finally:
        await engine.aclose()


def told(measures: MetricRegistry, *names: str) -> list[float]:
    return [measures.value(name) for name in names]


def test_a_policy_that_is_in_force_is_told() -> None:
    async def run() -> None:
        measures = MetricRegistry()
        async with closing_engine() as engine:
            source = MemorySource()
            watcher = PolicyWatcher(source, engine.replace, measures=measures)
            own = ServiceMeasures(engine, began_ns=7 * SECOND, watcher=watcher, measures=measures)
            rules = [{"id": "a", "key_by": "ip", "limit": "5/s"}]
            edit = replace_policy({"version": 1, "rules": rules})
            PolicyEditor(source).apply(edit, EditRequest(author="eve"))
            assert told(measures, "policy_revision", "policy_rules") == [0, 0]
            watcher.check_now()
            assert told(measures, "policy_revision", "policy_rules") == [1, 1]
            assert told(measures, "policy_stale", "policy_rejected") == [0, 0]
            assert measures.value("build_info", version=__version__) == 1
            assert measures.value("start_time_seconds") == own.began() == 7

    asyncio.run(run())


@pytest.mark.parametrize("what", ["rules", "envoy"])
def test_every_source_that_is_refused_or_stale_is_told(what: str) -> None:
    async def run() -> None:
        measures = MetricRegistry()
        async with closing_engine() as engine:
            source = ShakySource(made(1))
            watcher = PolicyWatcher(source, lambda policy: policy.revision, measures=measures)
            watchers = {"watcher" if what == "rules" else "envoy": watcher}
            own = ServiceMeasures(engine, began_ns=0, measures=measures, **watchers)
            watcher.check_now()
            assert told(measures, "policy_stale", "policy_rejected") == [0, 0]
            source.commit(made(2, limitt="1/s"))
            watcher.check_now()
            source.fail()
            watcher.check_now()
            assert told(measures, "policy_stale", "policy_rejected") == [1, 1]
            assert measures.value("policy_load_errors", what="rules") == 1
            source.recover()
            source.commit(made(3))
            watcher.check_now()
            assert told(measures, "policy_stale", "policy_rejected") == [0, 0]
            assert own.revision() == (3 if what == "rules" else 0)

    asyncio.run(run())


def test_equal_policies_have_equal_digests_whatever_their_revisions() -> None:
    text = "version: 1\nrules: [{id: a, key_by: ip, limit: %s}]\n"

    async def digest(limit: str, revision: int) -> float:
        measures = MetricRegistry()
        async with closing_engine() as engine:
            own = ServiceMeasures(engine, began_ns=0, measures=measures)
            engine.replace(replace(read_policy(text % limit), revision=revision))
            own.update_digest()
            assert own.digest() == own.digest() == int(own.digest()) < 2**53
            return measures.value("policy_digest")

    async def run() -> None:
        assert await digest("5/s", 7) == await digest("5/s", 1) != await digest("6/s", 7)

    asyncio.run(run())
