"""A call whose caller goes away is charged nothing, whenever that happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.support.async_stores import Waiting
from tests.support.rls_client import NOON, Asker, Desc, desc, request

POLICY = """
version: 1
rules:
  - {id: user, match: {attributes: {u: true}}, key_by: 'attribute:u', limit: 5/minute}
  - {id: all, match: {attributes: {v: true}}, key_by: global, limit: 5/minute; 9/hour fixed_window}
  - {id: tried, match: {attributes: {t: true}}, key_by: global, limit: 5/minute, mode: shadow}
"""
CONFIG = """
domain: legacy
descriptors:
  - {key: u, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: s, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
"""


async def cancelled(asker: Asker, asked: bytes, turns: int) -> bool:
    """True if the call could be cancelled after so many turns of the event loop."""
    answer: Any = asker.calls.should_rate_limit(asked)
    task = asyncio.ensure_future(answer)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    results = await asyncio.gather(task, return_exceptions=True)
    return isinstance(results[0], asyncio.CancelledError)


@pytest.mark.parametrize("charge", ["all_or_nothing", "always"])
@pytest.mark.parametrize(
    ("domain", "descriptors"),
    [
        ("edge", (desc("u=ada"),)),
        ("edge", (desc("u=ada", "v=x", "t=1"),)),
        ("edge", (desc("u=ada"), desc("u=bob"), desc("t=1"))),
        ("edge", (desc("u=bob", hits=0), desc("u=ada"))),
        ("legacy", (desc("u=ada"), desc("s=1"))),
        ("legacy", (desc("q=1"), desc("r=1"), desc("u=ada"))),
    ],
)
def test_a_cancelled_call_is_charged_nothing(
    domain: str, descriptors: tuple[Desc, ...], charge: Any
) -> None:
    store = Waiting(ManualClock(NOON))
    asker = Asker(POLICY, CONFIG, RlsOptions(charge=charge), store=store)
    asked = request(domain, *descriptors)
    turns = 0
    while asyncio.run(cancelled(asker, asked, turns)):
        turns += 1
    assert turns > 2 * store.turns
    # The last call was not cancelled, so it is charged, once. (Rules in shadow show no figures.)
    for one in descriptors:
        for entry in [str(entry) for entry in one.entries if entry != "t=1"]:
            assert asker.left(domain, entry) == (5 if one.hits == 0 else 4)
