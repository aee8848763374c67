"""What goes wrong without anybody's fault: mistakes, storms, clocks, policies that change."""

from __future__ import annotations

import asyncio
import logging
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.errors import StoreError
from headgate.policy.envoy_config.attributes import attributes_of
from headgate.service.rlqs import RlqsOptions
from headgate.service.rlqs.ledger import Claim, Ledger
from headgate.service.rlqs.messages import REPORTS
from headgate.service.rlqs.rates import MILLION, Allowance, TokenBucket
from headgate.service.rlqs.shared import LedgerStore
from headgate.units import SECOND
from tests.support.rlqs_gateways import PER_USER, Line, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.service.rlqs.allocation import Allocation
    from headgate.service.rlqs.shared import Step

ADA = {"user": "ada"}
FIRST = (ADA, 0, 1, 0)
HOURLY = PER_USER.replace("100/s", "100000/h fixed_window")


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


class _MistakenBoard(LedgerStore):
    """A board with a mistake in it, for some ledgers; or that is out of reach, for all."""

    def __init__(self, board: LedgerStore, error: Exception, of: str = "") -> None:
        self._board = board
        self._error = error
        self._of = of
        self.asked = 0

    async def update(self, name: str, step: Step) -> Allocation:
        self.asked += 1
        if self._of in name:
            raise self._error
        return await self._board.update(name, step)


async def _used(service: Service, rule: str) -> int:
    request = Request(attributes=attributes_of("edge", [("user", "ada")]))
    verdict = await service.core.rules.peek(request)
    (one,) = [one for one in verdict.enforced if one.rule.id == rule]
    return one.decision.limit.quota - one.decision.remaining


def test_a_mistake_about_one_counter_leaves_the_others_and_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        both = (FIRST, ({"user": "bob"}, 0, 1, 0))
        await line.report(*both)
        service.calls._ledgers = board = _MistakenBoard(
            service.calls._ledgers, RuntimeError("a mistake"), of="ada"
        )
        for counter in service.calls._counters.values():
            counter._ledgers = board
        before = len(line.messages)
        for _ in range(6):
            await service.pass_time(5)
            await line.report(*both)
        assert line.error is None
        assert len(line.messages) > before + 4
        assert line.rate(user="ada") == line.rate(user="bob") == 95
        logged = [one for one in caplog.records if "failed" in one.message]
        assert len(logged) == 1
        assert "a mistake" in str(logged[0].exc_info)
        await line.vanish()

    with caplog.at_level(logging.ERROR):
        run(scene)


def test_a_mistake_in_charging_does_not_stop_the_turns(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        await line.report(FIRST)

        def fail(*_: object) -> None:
            raise RuntimeError("a mistake")

        service.calls._charges.charge_ahead = fail  # type: ignore[assignment,method-assign]
        await service.pass_time(12)
        assert len(line.messages) == 3, "it was told again when half its time was over"
        assert [one.message for one in caplog.records if one.levelno >= logging.ERROR]
        await line.vanish()

    run(scene)


def test_streams_that_come_and_go_while_the_board_is_gone_leave_nothing_behind() -> None:
    async def scene() -> None:
        service = Service()
        first = Line(service)
        await first.report(FIRST)
        board = _MistakenBoard(service.calls._ledgers, StoreError("gone"))
        for counter in service.calls._counters.values():
            counter._ledgers = board
        for _ in range(20):
            line = Line(service)
            await line.report(FIRST)
            await line.vanish()
        (counter,) = service.calls._counters.values()
        assert len(counter._gone | counter._abandoned) <= 1
        assert service.calls._buckets == 1
        await first.vanish()
        assert service.calls._buckets == 0

    run(scene)


def test_a_board_that_is_gone_is_not_waited_for_again_and_again() -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        users = [{"user": str(n)} for n in range(200)]
        await line.report(*((user, 0, 1, 0) for user in users))
        board = _MistakenBoard(service.calls._ledgers, StoreError("gone"))
        for counter in service.calls._counters.values():
            counter._ledgers = board
        before = len(line.messages)
        await service.pass_time(6)
        assert board.asked <= 6 * 64
        again = {
            tuple(action.bucket_id.bucket.items())
            for message in line.messages[before:]
            for action in message.bucket_action
        }
        assert len(again) == len(users), "all go on with what they have"
        await line.vanish()

    run(scene)


def test_the_buckets_of_all_streams_are_bounded_together() -> None:
    async def scene() -> None:
        service = Service(options=RlqsOptions(most_buckets=2, most_buckets_in_all=3))
        one, other = Line(service), Line(service)
        for line in (one, other):
            await line.report(*(({"user": f"{id(line)}-{n}"}, 0, 1, 0) for n in range(2)))
        told = [
            action.HasField("abandon_action")
            for line in (one, other)
            for _, action in sorted(line.told.items())
        ]
        assert told == [False, False, False, True]
        await one.vanish()
        await other.report(({"user": "new"}, 0, 1, 0))
        assert other.rate(user="new")
        await other.vanish()

    run(scene)


def test_all_buckets_of_a_gateway_fit_into_one_message() -> None:
    """It reports all that it has at once, and would do so for ever if that were refused."""

    async def scene() -> None:
        service = Service(options=RlqsOptions(most_bytes=2_000))
        line = Line(service)
        users = [f"{n}".ljust(300, "x") for n in range(9)]
        for user in users:
            await line.report(({"user": user}, 0, 1, 0))
        given = [
            user for user in users if not line.told[("user", user),].HasField("abandon_action")
        ]
        assert given == users[:4], "1,500 bytes of the message are for them"
        await line.report(*(({"user": user}, 5, 1, 0) for user in given))
        assert line.error is None
        await line.vanish()
        again = Line(service)
        await again.report(({"user": users[-1]}, 0, 1, 0))
        assert again.rate(user=users[-1])
        await again.vanish()

    run(scene)


def test_what_clients_made_up_while_the_service_was_gone_is_given_up_bit_by_bit() -> None:
    async def scene() -> None:
        line = Line(Service(options=RlqsOptions(most_bytes=2_000, longest_value=100)))
        left = {f"{n}".ljust(500, "x") for n in range(20)}
        for _ in range(10):
            users = [*sorted(left), "ada"]
            await line.report(*(({"user": user}, 5, 1, 0) for user in users))
            left -= {
                dict(bucket)["user"]
                for bucket, action in line.told.items()
                if action.HasField("abandon_action")
            }
        assert line.error is None
        assert not left
        assert line.rate(**ADA)
        await line.vanish()

    run(scene)


def test_a_bucket_that_is_known_is_not_given_up_for_one_that_is_new() -> None:
    async def scene() -> None:
        line = Line(Service(options=RlqsOptions(most_buckets=2)))
        await line.report(FIRST, ({"user": "bob"}, 0, 1, 0))
        await line.report(({"user": "eve"}, 0, 1, 0), ({"user": "joe"}, 0, 1, 0), FIRST)
        assert line.rate(**ADA)
        for name in ("eve", "joe"):
            assert line.told[("user", name),].HasField("abandon_action")
        await line.vanish()

    run(scene)


def test_buckets_that_are_too_long_hide_no_mistake_from_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        service = Service(options=RlqsOptions(longest_value=10))
        line = Line(service)
        await line.report(({"user": "x" * 11}, 0, 1, 0), FIRST)

        def fail(*_: object) -> None:
            raise RuntimeError("a mistake")

        service.calls._charges.charge_ahead = fail  # type: ignore[assignment,method-assign]
        await service.pass_time(2)
        assert "abandoned" in caplog.text
        assert "a mistake" in caplog.text
        await line.vanish()

    run(scene)


def test_a_bucket_that_is_too_long_in_all_is_given_up_and_the_others_go_on() -> None:
    async def scene() -> None:
        line = Line(Service(options=RlqsOptions(longest_bucket=100)))
        long = {f"k{n}": "x" * 30 for n in range(4)}
        await line.report((long, 0, 1, 0), FIRST)
        assert line.error is None
        assert line.told[tuple(sorted(long.items()))].HasField("abandon_action")
        assert line.rate(**ADA)
        await line.vanish()

    run(scene)


def test_a_bucket_that_is_no_utf8_is_never_told_and_the_others_go_on() -> None:
    """Envoy ends the stream if it is told of such a bucket."""

    async def scene() -> None:
        line = Line(Service())
        message = REPORTS(domain="edge")
        for bucket in ({"user": "od"}, ADA):
            message.bucket_quota_usages.add().bucket_id.bucket.update(bucket)
        await line.report(raw=message.SerializeToString().replace(b"od", b"\xff\xfe"))
        assert line.error is None
        assert list(line.told) == [tuple(ADA.items())]
        assert line.rate(**ADA)
        await line.vanish()

    run(scene)


def test_what_was_charged_ahead_under_another_policy_is_put_right_where_it_was_charged() -> None:
    other = HOURLY.replace("per-user", "renamed")

    async def scene() -> None:
        service = Service(HOURLY)
        line = Line(service)
        await line.report((ADA, 5, 50, 0))
        await service.pass_time(4)
        assert await _used(service, "per-user") == 90
        service.replace(other)
        await service.pass_time(1)
        await line.report((ADA, 5, 7, 0))
        assert await _used(service, "renamed") == 7
        service.replace(HOURLY)
        assert await _used(service, "per-user") == 50
        await line.vanish()

    run(scene)


def _ledger(random: Random, claims: int) -> Ledger:
    def end() -> int:
        return random.choice([0, 100 * SECOND + random.randrange(1, 30 * SECOND)])

    made = {
        f"g{n}": Claim(
            token_bucket=TokenBucket(random.randrange(1, 5), 1, random.randrange(1, 4)),
            made_ns=90 * SECOND,
            ends_ns=100 * SECOND + random.randrange(1, 30 * SECOND),
            held_rate=random.randrange(MILLION),
            held_burst=random.randrange(3),
            held_until_ns=end() or 100 * SECOND + 1,
        )
        for n in range(claims)
    }
    return Ledger(random.randrange(MILLION), 100 * SECOND, claims=made)


@pytest.mark.parametrize("seed", range(5))
def test_to_age_at_once_is_to_age_from_end_to_end(seed: int) -> None:
    ledger = _ledger(Random(seed), 20)
    allowance = Allowance(Fraction(60), 100)
    ends = {end for one in ledger.claims.values() for end in (one.ends_ns, one.held_until_ns)}
    now_ns = 125 * SECOND
    step = ledger
    for end in (*sorted(one for one in ends if one < now_ns), now_ns):
        step = step.aged(end, allowance)
    assert ledger.aged(now_ns, allowance) == step


def test_a_clock_that_was_set_back_keeps_all_in_force_for_as_long_as_it_would_have_been() -> None:
    ledger = _ledger(Random(1), 5)
    back = ledger.set_back(40 * SECOND)
    assert back.at_ns == 40 * SECOND
    assert (back.pool, back.rate, back.burst) == (ledger.pool, ledger.rate, ledger.burst)
    for name, one in ledger.claims.items():
        assert back.claims[name].free_at_ns == one.free_at_ns - 60 * SECOND
    allowance = Allowance(Fraction(60), 100)
    later, also = (one.aged(one.at_ns + 17 * SECOND, allowance) for one in (ledger, back))
    assert (later.pool, later.rate, later.burst) == (also.pool, also.rate, also.burst)
