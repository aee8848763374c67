"""What calls are told when the store is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from headgate.errors import StoreError
from headgate.observability import METRICS
from headgate.policy.envoy_config.attributes import request_of
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import RlsOptions
from headgate.stores.base import Store
from headgate.stores.factory import unwrapped
from headgate.stores.operations import TakeEach
from headgate.testing import ManualClock
from tests.support import envoy_messages
from tests.support.rls_client import (
    NOON,
    OK,
    OVER,
    Asker,
    DistantStore,
    codes_of,
    desc,
    headers_of,
    request,
)

if TYPE_CHECKING:
    from headgate.stores.operations import Operation

R = TypeVar("R")

RULES = """
version: 1
rules:
  - {id: open, match: {attributes: {open: true}}, key_by: global, limit: 2/minute}
  - id: closed
    match: {attributes: {closed: true}}
    key_by: global
    limit: 2/minute
    on_store_failure: fail_closed
  - id: local
    match: {attributes: {local: true}}
    key_by: global
    limit: 2/minute
    on_store_failure: local
  - id: also-local
    match: {attributes: {too: true}}
    key_by: global
    limit: 2/minute
    on_store_failure: local
  - {id: trial, match: {attributes: {open: true}}, key_by: global, limit: 1/hour, mode: shadow}
"""
CONFIG = """
domain: legacy
descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 2}}]
"""


def without_store(**options: object) -> Asker:
    store = DistantStore(ManualClock(NOON))
    store.is_gone = True
    given = RlsOptions(**options)  # type: ignore[arg-type]  # as the test says
    return Asker(RULES, CONFIG, given, store=store)


def test_each_rule_decides_as_it_says() -> None:
    asker = without_store()
    assert codes_of(asker.ask("edge", desc("open=x"), desc("closed=x"))) == [OK, OVER]
    assert [asker.code("edge", desc("open=x")) for _ in range(4)] == [OK, OK, OVER, OVER]
    assert [asker.code("edge", desc("closed=x")) for _ in range(2)] == [OVER] * 2


def test_a_rule_that_is_local_goes_on_in_this_process() -> None:
    asker = without_store()
    assert [asker.code("edge", desc("local=x")) for _ in range(3)] == [OK, OK, OVER]


def test_a_local_rule_has_the_same_counters_for_every_way_into_the_service() -> None:
    asker = without_store()
    engine = asker.core.rules
    asked = request_of("edge", (("local", "x"),))
    assert asyncio.run(engine.check(asked)).allowed
    assert [asker.code("edge", desc("local=x")) for _ in range(2)] == [OK, OVER]


def test_a_local_rule_is_not_charged_for_what_another_one_refuses() -> None:
    asker = without_store()
    for _ in range(3):
        answer = asker.ask("edge", desc("local=x"), desc("closed=x"))
        assert codes_of(answer) == [OK, OVER]
    assert [asker.code("edge", desc("local=x")) for _ in range(3)] == [OK, OK, OVER]


def test_a_local_rule_beside_one_that_is_looked_at_is_charged_once() -> None:
    asker = without_store()
    both = (desc("open=x", hits=0), desc("local=x"))
    assert [asker.code("edge", *both) for _ in range(3)] == [OK, OK, OVER]


def test_a_local_look_that_is_refused_keeps_local_rules_from_being_charged() -> None:
    asker = without_store()
    assert [asker.code("edge", desc("local=x")) for _ in range(2)] == [OK, OK]
    for _ in range(3):
        assert asker.code("edge", desc("local=x", hits=0), desc("too=x")) == OVER
    assert [asker.code("edge", desc("too=x")) for _ in range(3)] == [OK, OK, OVER]


def test_what_is_looked_at_reported_and_given_back_is_so_locally_too() -> None:
    asker = without_store()
    codes = [asker.code("edge", desc("local=x", hits=hits)) for hits in (0, 3, 0)]
    assert codes == [OK, OVER, OVER]
    assert asker.code("edge", desc("local=x", hits=3, negative=True)) == OK
    assert asker.code("edge", desc("local=x", hits=0)) == OK


def test_reports_that_cannot_be_recorded_are_answered_as_the_rule_says() -> None:
    asker = without_store(reports="always")
    assert asker.code("edge", desc("open=x", hits=2)) == OK
    assert asker.code("edge", desc("open=x", hits=3)) == OVER
    assert asker.code("edge", desc("closed=x", hits=5)) == OVER


def test_a_refusal_for_want_of_a_store_says_when_to_come_back() -> None:
    answer = without_store().ask("edge", desc("closed=x"))
    assert 1 <= int(headers_of(answer)["retry-after"]) <= 5
    assert answer.statuses[0].duration_until_reset.seconds == 1


def test_for_a_configuration_it_is_an_error_unless_said_otherwise() -> None:
    with pytest.raises(CallError) as caught:
        without_store().ask("legacy", desc("user=ada"))
    assert caught.value.code is Code.UNAVAILABLE
    opened = without_store(on_store_failure="fail_open")
    assert [opened.code("legacy", desc("user=ada")) for _ in range(3)] == [OK, OK, OVER]
    closed = without_store(on_store_failure="fail_closed")
    assert closed.code("legacy", desc("user=ada")) == OVER


def test_a_check_that_charges_in_a_second_step_survives_the_loss_of_the_store_between() -> None:
    class Leaving(DistantStore):
        async def arun(self, operation):  # type: ignore[no-untyped-def]  # as the one above
            reply = await super().arun(operation)
            self.is_gone = True
            return reply

    asker = Asker(RULES, store=Leaving(ManualClock(NOON)))
    answer = asker.ask("edge", desc("open=x", hits=0), desc("closed=x"))
    assert codes_of(answer) == [OK, OVER]


class HalfGone(DistantStore):
    """A store of two servers, of which the one with the counters of *rule* is gone."""

    def __init__(self, rule: str) -> None:
        super().__init__(ManualClock(NOON))
        self._rule = rule

    async def arun(self, operation: Operation[R]) -> R:
        reply = await super().arun(operation)
        if not isinstance(operation, TakeEach):
            return reply
        gone = [self._rule in one.checks[0].group for one in operation.takes]
        replies: Any = reply
        kept = [
            StoreError("gone") if lost else one for lost, one in zip(gone, replies, strict=True)
        ]
        return cast("R", tuple(kept))


@pytest.mark.parametrize("charge", ["all_or_nothing", "always"])
def test_a_limit_that_cannot_be_looked_at_leaves_the_others_in_force(charge: str) -> None:
    asker = Asker(RULES, store=HalfGone("open"), options=RlsOptions(charge=charge))  # type: ignore[arg-type]  # as above
    both = (desc("open=x", hits=0), desc("closed=x"))
    assert [asker.code("edge", *both) for _ in range(3)] == [OK, OK, OVER]


def test_a_store_that_never_waits_may_be_gone_too() -> None:
    class Near(Store):
        waits = False

        def run(self, operation: Operation[R]) -> R:
            raise StoreError("gone")

    asker = Asker(RULES, store=Near())
    answer = asker.calls.should_rate_limit(request("edge", desc("open=x"), desc("closed=x")))
    assert isinstance(answer, bytes)
    assert codes_of(envoy_messages.service.RateLimitResponse.FromString(answer)) == [OK, OVER]


def test_a_prepared_take_that_fails_is_an_outage_like_any_other() -> None:
    class Near(Store):
        waits = False

        def run(self, operation: Operation[R]) -> R:
            raise StoreError("gone")

    asker = Asker(RULES, store=Near())
    assert codes_of(asker.ask("edge", desc("closed=x"))) == [OVER]
    assert [asker.code("edge", desc("local=x")) for _ in range(3)] == [OK, OK, OVER]


def test_when_the_store_is_back_it_decides() -> None:
    asker = without_store()
    assert asker.code("edge", desc("closed=x")) == OVER
    store = unwrapped(asker.core.rules.engine.store)
    assert isinstance(store, DistantStore)
    store.is_gone = False
    assert [asker.code("edge", desc("closed=x")) for _ in range(3)] == [OK, OK, OVER]


def decided() -> dict[str, float]:
    modes = ("fail_open", "fallback", "local", "fail_closed", "escalated")
    return {mode: METRICS.value("decisions_without_store", mode=mode) for mode in modes}


@pytest.mark.parametrize(
    ("descriptors", "mode"),
    [
        ((desc("open=x"), desc("local=x")), "fail_open"),
        ((desc("open=x"), desc("closed=x"), desc("local=x")), "fail_closed"),
        ((desc("open=x", hits=0), desc("local=x")), "fail_open"),
        ((desc("local=x"), desc("too=x")), "local"),
    ],
)
def test_a_call_is_counted_once_whatever_it_is_about(
    descriptors: tuple[Any, ...], mode: str
) -> None:
    asker = without_store()
    before = decided()
    asker.ask("edge", *descriptors)
    more = {name: count - before[name] for name, count in decided().items()}
    assert {name: count for name, count in more.items() if count} == {mode: 1}
