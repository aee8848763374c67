"""What gates and shedders refuse is counted, as what limits refuse is; each request once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from headgate.observability import RECORDER, DecisionRecord
from headgate.overload import LoadShedder
from headgate.policy.loader import read_policy
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from headgate.units import SECOND
from tests.support.slow_apps import App, Client
from tests.support.wsgi_caller import call, hello

if TYPE_CHECKING:
    from collections.abc import Iterator

FAIR = """
version: 1
rules:
  - {id: %s-turns, key_by: ip, fair: {slots: 1, queue: 1, max_wait: 60s}}
  - {id: %s-limit, key_by: ip, limit: 9/hour}
"""


class Noted:
    """What was counted since it was made."""

    def __init__(self) -> None:
        self._cells = dict(RECORDER.counts())
        self._requests = self._counted()
        self._timed = sum(RECORDER.latency) + RECORDER.untimed
        self.heard: list[DecisionRecord] = []

    @property
    def decisions(self) -> dict[tuple[str, str, str], int]:
        now = dict(RECORDER.counts())
        grown = {name: count - self._cells.get(name, 0) for name, count in now.items()}
        return {name: count for name, count in grown.items() if count}

    @property
    def requests(self) -> tuple[int, int]:
        """How many were admitted, and refused."""
        refused, admitted = self._counted()
        return admitted - self._requests[1], refused - self._requests[0]

    @property
    def timed(self) -> int:
        return sum(RECORDER.latency) + RECORDER.untimed - self._timed

    def _counted(self) -> tuple[int, int]:
        refused, admitted = RECORDER.requests
        return refused[0], admitted[0]


@pytest.fixture
def noted() -> Iterator[Noted]:
    one = Noted()
    end = RECORDER.listen(one.heard.append)
    yield one
    end()


def shedding() -> LoadShedder:
    shedder = LoadShedder(rise=1, fall=10)
    for second in range(3):
        shedder.observe(1, now_ns=second * SECOND)
    return shedder


def test_a_request_that_takes_turns_is_counted_once_when_it_has_them_or_is_refused(
    noted: Noted,
) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        policy = read_policy(FAIR.replace("%s", "loop"))
        client = Client(RateLimitMiddleware(App(1), policy=policy, clock=loop.time_ns))
        tasks = [asyncio.ensure_future(client.ask("/")) for _ in range(3)]
        await asyncio.sleep(0.5)
        assert noted.requests == (1, 1), "one is in, one waits and is neither, one was refused"
        return [status for status, _, _ in await asyncio.gather(*tasks)]

    assert sorted(run_virtually(main())) == [200, 200, 503]
    assert noted.requests == (2, 1)
    assert noted.decisions == {
        ("loop-limit", "allowed", "store"): 3,
        ("loop-turns", "allowed", "gate"): 2,
        ("loop-turns", "denied", "gate"): 1,
    }
    assert noted.timed == 3, "how long somebody waited is no matter of how quickly is decided"
    (denial,) = [shown for shown in noted.heard if not shown.allowed]
    assert (denial.source, [said.rule for said in denial.rules]) == ("gate", ["loop-turns"])
    assert denial.rules[0].outcome == "denied"


def test_what_a_shedder_refuses_is_counted_under_its_name(noted: Noted) -> None:
    policy = read_policy("version: 1\nrules: [{id: unasked, key_by: ip, limit: 9/hour}]")
    options: Any = {"policy": policy, "shedder": shedding()}

    async def main() -> int:
        return (await Client(RateLimitMiddleware(App(0), **options)).ask("/"))[0]

    assert asyncio.run(main()) == 503
    assert call(WsgiMiddleware(hello, **options), "GET", "/").code == 503
    assert noted.requests == (0, 2)
    assert noted.decisions == {("load-shedding", "denied", "shedder"): 2}
    assert {(shown.allowed, shown.source, shown.rules[0].source) for shown in noted.heard} == {
        (False, "shedder", "shedder")
    }


def test_apps_that_block_count_turns_too(noted: Noted) -> None:
    app = WsgiMiddleware(hello, policy=read_policy(FAIR.replace("%s", "block")))
    assert call(app, "GET", "/").code == 200
    assert noted.requests == (1, 0)
    assert noted.decisions == {
        ("block-limit", "allowed", "store"): 1,
        ("block-turns", "allowed", "gate"): 1,
    }


def test_what_the_limits_refuse_never_comes_to_the_gate(noted: Noted) -> None:
    policy = read_policy(FAIR.replace("%s", "first").replace("9/hour", "1/hour"))
    app = WsgiMiddleware(hello, policy=policy)
    assert [call(app, "GET", "/").code for _ in range(2)] == [200, 429]
    assert noted.requests == (1, 1)
    assert ("first-turns", "denied", "gate") not in noted.decisions
