"""Streams of reports in, assignments out."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError
from headgate.observability import RECORDER
from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs import QuotaCalls, RlqsOptions
from headgate.service.rlqs.messages import DENY_ALL, REPORTS
from tests.support.async_stores import LoopStore
from tests.support.rlqs_gateways import PER_USER, Envoy, Line, Service, breathe, core_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

ADA = {"user": "ada"}
FIRST = (ADA, 0, 1, 0)


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_the_first_report_is_answered_at_once_with_a_token_bucket() -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        await line.report(FIRST)
        (message,) = line.messages
        *_, action = message.bucket_action
        assert dict(action.bucket_id.bucket) == ADA
        assigned = action.quota_assignment_action
        assert assigned.assignment_time_to_live.seconds == service.options.ttl
        bucket = assigned.rate_limit_strategy.token_bucket
        assert 90 <= bucket.tokens_per_fill.value <= 100
        assert bucket.fill_interval.seconds == 1
        assert 1 <= bucket.max_tokens <= 100
        await line.vanish()

    run(scene)


def test_nothing_that_a_gateway_had_before_its_stream_outlives_the_first_message() -> None:
    async def scene() -> None:
        line = Line(Service())
        await line.report(FIRST)
        denied, given = line.messages[0].bucket_action
        strategy = denied.quota_assignment_action.rate_limit_strategy
        assert strategy.WhichOneof("strategy") == "blanket_rule"
        assert strategy.blanket_rule == DENY_ALL
        assert given.quota_assignment_action.rate_limit_strategy.token_bucket.max_tokens
        await line.vanish()

    run(scene)


def test_a_second_gateway_gets_its_part_when_the_first_was_cut() -> None:
    async def scene() -> None:
        service = Service()
        one, other = Line(service), Line(service)
        await one.report(FIRST)
        await other.report(FIRST)
        assert (one.rate(**ADA) or 0) + (other.rate(**ADA) or 0) <= 100
        await service.pass_time(3)
        assert one.rate(**ADA) == other.rate(**ADA) == 47.5
        await one.vanish()
        await other.vanish()

    run(scene)


def test_rates_follow_demand() -> None:
    async def scene() -> None:
        service = Service()
        busy, quiet = Envoy(service, **ADA), Envoy(service, **ADA)
        for _ in range(200):
            service.clock.advance(0.1)
            await busy.ask(20)
            await quiet.ask(1)
            if service.clock() % 10**9 < 10**8:
                await service.calls.tick()
                await breathe()
        assert busy.rate > 75
        assert quiet.rate > 10
        assert busy.rate + quiet.rate <= 100
        await busy.line.vanish()
        await quiet.line.vanish()

    run(scene)


def test_an_assignment_is_told_again_when_half_its_time_is_over_and_not_before() -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        await line.report(FIRST)
        await service.pass_time(4)
        assert len(line.messages) == 1
        await service.pass_time(2)
        assert len(line.messages) == 2
        # The same figures, or Envoy would fill the bucket anew.
        first, again = (message.bucket_action for message in line.messages)
        assert [first[-1]] == list(again)
        await line.vanish()

    run(scene)


def test_a_bucket_that_no_rule_is_for_may_pass_and_is_told_so_again() -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        await line.report(({"tenant": "acme"}, 0, 1, 0))
        assert line.rate(tenant="acme") == float("inf")
        await service.pass_time(6)
        assert len(line.messages) == 2
        await line.vanish()

    run(scene)


def test_buckets_that_share_a_counter_share_its_limit() -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        buckets = [{"user": "ada", "path": path} for path in ("/a", "/b", "/c")]
        await line.report(*[(bucket, 0, 1, 0) for bucket in buckets])
        await service.pass_time(4)
        rates = [line.rate(**bucket) or 0 for bucket in buckets]
        assert 85 < sum(rates) <= 100
        assert min(rates) > 25
        await line.vanish()

    run(scene)


def test_an_idle_bucket_is_abandoned_and_given_again_when_it_is_asked_for() -> None:
    async def scene() -> None:
        service = Service(options=RlqsOptions(idle=20))
        line = Line(service)
        await line.report(FIRST)
        for _ in range(5):
            await service.pass_time(5)
            await line.report((ADA, 5, 0, 0))
        assert any(
            action.HasField("abandon_action")
            for message in line.messages
            for action in message.bucket_action
        )
        await line.report(FIRST)
        assert (line.rate(**ADA) or 0) > 0
        await line.vanish()

    run(scene)


def test_the_part_of_a_silent_gateway_goes_to_the_others_when_its_time_is_over() -> None:
    async def scene() -> None:
        service = Service()
        silent, other = Line(service), Line(service)
        await silent.report(FIRST)
        await other.report(FIRST)
        for _ in range(8):
            await service.pass_time(5)
            await other.report((ADA, 5, 200, 500))
        assert other.rate(**ADA) == 95
        await silent.vanish()
        await other.vanish()

    run(scene)


def test_what_a_vanished_gateway_had_counts_until_its_time_is_over() -> None:
    async def scene() -> None:
        service = Service()
        one, other = Line(service), Line(service)
        await one.report(FIRST)
        await service.pass_time(2)
        await one.vanish()
        await other.report(FIRST)
        await service.pass_time(5)
        assert (other.rate(**ADA) or 0) <= 5
        await service.pass_time(6)
        assert other.rate(**ADA) == 95
        await other.vanish()

    run(scene)


@pytest.mark.parametrize(
    ("domains", "words"),
    [(("",), "first message has no domain"), (("edge", "core"), "was 'edge' and is 'core'")],
)
def test_a_stream_has_one_domain(domains: tuple[str, ...], words: str) -> None:
    async def scene() -> None:
        line = Line(Service())
        for domain in domains:
            await line.report(FIRST, domain=domain)
        assert isinstance(line.error, CallError)
        assert line.error.code == Code.INVALID_ARGUMENT
        assert words in str(line.error)

    run(scene)


def test_later_messages_need_not_say_the_domain() -> None:
    async def scene() -> None:
        line = Line(Service())
        await line.report(FIRST)
        await line.report((ADA, 5, 10, 0), domain="")
        assert line.error is None
        await line.vanish()

    run(scene)


def test_a_malformed_message_ends_the_stream() -> None:
    async def scene() -> None:
        service = Service()
        line = Line(service)
        await line.report(raw=b"\xff\xff")
        assert isinstance(line.error, CallError)
        assert line.error.code == Code.INVALID_ARGUMENT
        other = Line(service)
        await other.report(FIRST)
        assert other.rate(**ADA)
        await other.vanish()

    run(scene)


def test_streams_are_bounded_and_of_buckets_that_are_too_many_the_last_are_given_up() -> None:
    async def scene() -> None:
        service = Service(options=RlqsOptions(most_streams=1, most_buckets=2))
        line, other = Line(service), Line(service)
        await breathe()
        assert isinstance(other.error, CallError)
        assert other.error.code == Code.RESOURCE_EXHAUSTED
        for n in range(3):
            await line.report(({"user": str(n)}, 0, 1, 0))
        assert line.error is None, "one who thinks of many names does not end it for all"
        assert line.rate(user="0")
        assert line.rate(user="1")
        assert line.told[("user", "2"),].HasField("abandon_action")
        await line.vanish()

    run(scene)


def test_a_stream_that_takes_nothing_is_ended() -> None:
    async def scene() -> None:
        service = Service()
        sent: asyncio.Queue[bytes] = asyncio.Queue()
        line = Line(service)
        await line.report(FIRST)
        replies = service.calls.stream_usage(_endless(sent))
        first = asyncio.ensure_future(anext(replies))
        sent.put_nowait(_first_message())
        await first
        # From now on nobody takes what it is told.
        await service.pass_time(6)
        sent.put_nowait(_first_message())
        await service.pass_time(3)
        with pytest.raises(CallError, match="read nothing"):
            await anext(replies)
        await line.vanish()

    run(scene)


async def _endless(sent: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await sent.get()


def _first_message() -> bytes:
    message = REPORTS(domain="edge")
    message.bucket_quota_usages.add(num_requests_allowed=1).bucket_id.bucket.update(ADA)
    return bytes(message.SerializeToString())


def test_a_gateway_that_sends_no_more_ends_its_stream() -> None:
    async def scene() -> None:
        line = Line(Service())
        await line.report(FIRST)
        await line.hang_up()
        assert line.listening.done()
        assert line.error is None
        assert line.rate(**ADA)

    run(scene)


def test_closing_ends_all_streams_and_takes_no_others() -> None:
    async def scene() -> None:
        service = Service()
        await service.calls.start()
        line = Line(service)
        await line.report(FIRST)
        await service.calls.aclose()
        await breathe()
        assert line.listening.done()
        assert line.error is None
        other = Line(service)
        await breathe()
        assert isinstance(other.error, CallError)
        assert other.error.code == Code.UNAVAILABLE

    run(scene)


def test_a_new_service_assigns_the_whole_limit_to_new_buckets() -> None:
    async def scene() -> None:
        service = Service(is_fresh=True)
        line = Line(service)
        await line.report(FIRST)
        assert line.rate(**ADA) == 95
        await line.vanish()

    run(scene)


def test_a_restarted_service_assigns_half_until_earlier_assignments_have_ended() -> None:
    async def scene() -> None:
        service = Service(is_fresh=True)
        new, line = Line(service), Line(service)
        await new.report(FIRST)
        assert new.rate(**ADA) == 95
        await line.report((ADA, 5, 40, 0))  # a bucket that is older than its stream
        await service.pass_time(3)
        assert 40 < (new.rate(**ADA) or 0) + (line.rate(**ADA) or 0) <= 50
        await new.vanish()
        await service.pass_time(service.options.ttl + 4)
        assert line.rate(**ADA) == 95
        await line.vanish()

    run(scene)


class _SharedStore(LoopStore):
    """A store that others use too, as far as anybody can see."""

    async def arun(self, operation: Any) -> Any:
        raise NotImplementedError


def test_a_shared_store_wants_a_shared_board() -> None:
    service = Service()
    core = core_of(PER_USER, service.clock)
    core.rules.engine.store = _SharedStore()
    with pytest.raises(OptionError, match="RedisLedgerStore"):
        QuotaCalls(core, RlqsOptions())


def test_what_gateways_decided_is_in_the_journal() -> None:
    async def scene() -> None:
        before = dict(RECORDER.counts())
        line = Line(Service())
        await line.report((ADA, 0, 7, 3))
        now = dict(RECORDER.counts())
        counted: Counter[tuple[str, str]] = Counter()
        for name in now:  # of all rules: other tests may have had their own
            counted[name[1:]] += now[name] - before.get(name, 0)
        assert counted["allowed", "gateway"] == 7
        assert counted["denied", "gateway"] == 3
        await line.vanish()

    run(scene)
