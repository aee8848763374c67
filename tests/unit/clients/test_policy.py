"""Outgoing calls under a policy: reserved before they are sent, settled by their responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.clients import NotSentError, RetryPolicy
from headgate.clients.httpx import AsyncPacedTransport, PacedTransport
from headgate.clients.requests import PacedAdapter
from headgate.engine.request import Request
from headgate.errors import OptionError, StoreError
from headgate.observability import METRICS
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from headgate.runtime.effects import Wait
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from tests.support.async_stores import LoopStore
from tests.support.httpx_clients import Blocking, Body, kinds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

URL = "https://api.example.com/v1/chat/completions"
POLICY = """
version: 1
prices: {"*": {input: 10, output: 20}}
rules:
  - id: tokens
    match: {endpoint: /v1/chat/completions, model: m-*}
    key_by: api_key
    limit: 1000/hour
    cost: {llm: {count: tokens, default_output: 300}}
  - {id: spend, match: {endpoint: /v1/**}, key_by: api_key, limit: 1 usd/day, cost: {llm: spend}}
identity: {api_key: {header: authorization}}
"""
KEY = {"authorization": "Bearer one"}
ASKED = {"model": "m-1", "max_tokens": 400}
PROMPT = -(-len(json.dumps(ASKED, separators=(",", ":"))) // 4)
RESERVED = 400 + PROMPT
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
PLAIN = json.dumps({"usage": USAGE}).encode()
STREAM = (
    b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n',
    b'data: {"choices": [], "usage": ' + json.dumps(USAGE).encode() + b"}\n\n",
    b"data: [DONE]\n\n",
)


class Parts(Body):
    """A body in parts, with an error after them if there is one."""

    def __init__(self, *parts: bytes, error: Exception | None = None) -> None:
        super().__init__()
        self.parts = list(parts)
        self.error = error

    def __iter__(self) -> Iterator[bytes]:
        while self.parts:
            yield self.parts.pop(0)
        if self.error is not None:
            raise self.error


class Model:
    """Answers as its `answer` says, and keeps the times of calls."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.times: list[float] = []
        self.status = 200
        self.kind = "application/json"
        self.body: Callable[[], Parts] = lambda: Parts(PLAIN)
        self.error: Exception | None = None
        self.before: Callable[[], None] = lambda: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.times.append(self.clock.now)
        self.before()
        if self.error is not None:
            raise self.error
        headers = {"content-type": self.kind}
        return httpx.Response(self.status, headers=headers, stream=self.body())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000_000)


@pytest.fixture
def model(clock: ManualClock) -> Model:
    return Model(clock)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def left(store: MemoryStore, clock: ManualClock) -> Callable[[], tuple[int, int]]:
    """The tokens and the micro-dollars that are left."""
    engine = RuleEngine(read_policy(POLICY), store=store, namespace="outgoing")
    headers, attributes = tuple(KEY.items()), {"llm.model": "m-1"}
    request = Request("POST", "/v1/chat/completions", headers=headers, attributes=attributes)

    def reading() -> tuple[int, int]:
        tokens, spend = engine.peek(request, cost=0).rules
        return tokens.decision.remaining, spend.decision.remaining

    return reading


Left = Callable[[], tuple[int, int]]


def client_of(kind: str, model: Any, **options: Any) -> Blocking:
    return Blocking(kind, model, **{"policy": read_policy(POLICY), **options})


def call(client: Blocking, asked: Any = None) -> httpx.Response:
    return client.request("POST", URL, json=asked or ASKED, headers=KEY)


@kinds
def test_a_plain_response_is_charged_by_its_usage(
    kind: str, model: Model, store: MemoryStore, left: Left
) -> None:
    model.before = lambda: seen.append(left())
    seen: list[tuple[int, int]] = []
    with client_of(kind, model, store=store) as client:
        assert call(client).json() == {"usage": USAGE}
    assert seen == [(1000 - RESERVED, 1_000_000 - PROMPT * 10 - 400 * 20)]
    assert left() == (1000 - 15, 1_000_000 - 10 * 10 - 5 * 20)


def test_metrics_show_what_was_reserved_beside_what_was_settled(
    model: Model, store: MemoryStore
) -> None:
    names = [f"model_cost_{what}" for what in ("reserved", "settled")]

    def counted() -> list[float]:
        return [METRICS.value(name, rule="tokens", kind="tokens") for name in names]

    before = counted()
    with client_of("sync", model, store=store) as client:
        call(client)
    grown = [after - first for after, first in zip(counted(), before, strict=True)]
    assert grown == [RESERVED, 15]


@kinds
def test_a_stream_is_charged_by_its_last_event_and_passes_as_it_is(
    kind: str, model: Model, store: MemoryStore, left: Left
) -> None:
    model.kind, model.body = "text/event-stream", lambda: Parts(*STREAM)
    with client_of(kind, model, store=store) as client:
        assert call(client).content == b"".join(STREAM)
    assert left()[0] == 1000 - 15


@pytest.mark.parametrize(
    ("status", "body", "charged"),
    [(200, b"{}", RESERVED), (400, b"{}", 0), (500, b"", 0), (429, PLAIN, 15)],
)
@kinds
def test_without_usage_the_estimate_stays_charged_unless_it_is_an_error(
    kind: str, model: Model, store: MemoryStore, left: Left, status: int, body: bytes, charged: int
) -> None:
    model.status, model.body = status, lambda: Parts(body)
    with client_of(kind, model, store=store) as client:
        assert call(client).status_code == status
    assert left()[0] == 1000 - charged


@pytest.mark.parametrize(
    ("error", "charged"),
    [(httpx.ConnectError("no"), 0), (httpx.ReadTimeout("slow"), RESERVED)],
)
@kinds
def test_a_call_that_fails_is_charged_unless_it_was_never_sent(
    kind: str, model: Model, store: MemoryStore, left: Left, error: Exception, charged: int
) -> None:
    model.error = error
    with client_of(kind, model, store=store) as client, pytest.raises(type(error)):
        call(client)
    assert left()[0] == 1000 - charged


@kinds
def test_a_stream_that_breaks_is_charged_its_estimate(
    kind: str, model: Model, store: MemoryStore, left: Left
) -> None:
    model.kind = "text/event-stream"
    model.body = lambda: Parts(STREAM[0], error=httpx.ReadError("cut"))
    with client_of(kind, model, store=store) as client, pytest.raises(httpx.ReadError):
        call(client)
    assert left()[0] == 1000 - RESERVED


def test_a_stream_that_is_closed_early_is_charged_its_estimate(
    model: Model, store: MemoryStore, left: Left, clock: ManualClock
) -> None:
    model.kind, model.body = "text/event-stream", lambda: Parts(*STREAM)
    policy, inner = read_policy(POLICY), httpx.MockTransport(model)
    paced = PacedTransport(inner, policy=policy, store=store, clock=clock)
    with (
        httpx.Client(transport=paced) as client,
        client.stream("POST", URL, json=ASKED, headers=KEY) as response,
    ):
        assert next(response.iter_raw()) == STREAM[0]
        assert left()[0] == 1000 - RESERVED
        response.close()
        response.close()
        assert left()[0] == 1000 - RESERVED


def test_a_response_that_came_whole_is_settled_at_once(
    store: MemoryStore, left: Left, clock: ManualClock
) -> None:
    inner = httpx.MockTransport(lambda _: httpx.Response(200, json={"usage": USAGE}))
    paced = PacedTransport(inner, policy=read_policy(POLICY), store=store, clock=clock)
    with httpx.Client(transport=paced) as client:
        client.post(URL, json=ASKED, headers=KEY)
    assert left()[0] == 1000 - 15


@kinds
def test_a_denied_call_waits_until_its_estimate_fits(
    kind: str, model: Model, clock: ManualClock
) -> None:
    model.body = lambda: Parts(b"{}")  # each costs what it reserves
    with client_of(kind, model, retry=RetryPolicy(max_wait=3600)) as client:
        for _ in range(3):
            call(client)
    wait = (3 * RESERVED - 1000) * 3.6
    assert [time - 1_000_000_000 for time in model.times] == pytest.approx([0, 0, wait])


@kinds
def test_a_call_that_would_wait_for_too_long_is_not_sent(kind: str, model: Model) -> None:
    model.body = lambda: Parts(b"{}")
    with client_of(kind, model) as client:
        call(client)
        call(client)
        with pytest.raises(NotSentError, match="a limit of the policy is used up") as caught:
            call(client)
        assert caught.value.cause == "policy"
        assert caught.value.retry_after == pytest.approx((3 * RESERVED - 1000) * 3.6, abs=1)
        with pytest.raises(NotSentError) as caught:
            call(client, {"model": "m-1", "max_tokens": 5000})
        assert caught.value.retry_after is None
    assert len(model.times) == 2


@kinds
def test_of_several_rules_all_or_none_are_charged(
    kind: str, model: Model, store: MemoryStore, left: Left
) -> None:
    with client_of(kind, model, store=store) as client, pytest.raises(NotSentError):
        call(client, {"model": "m-1", "max_tokens": 1200})  # fits the budget, not the tokens
    assert left() == (1000, 1_000_000)


@kinds
def test_a_body_that_is_sent_as_it_is_made_is_a_call_of_any_model(
    kind: str, model: Model, store: MemoryStore, left: Left
) -> None:
    model.body = lambda: Parts(b"{}")
    body = json.dumps({"model": "other"}).encode()

    def blocking() -> Iterator[bytes]:
        yield body

    async def not_blocking() -> AsyncIterator[bytes]:
        yield body

    with client_of(kind, model, store=store) as client:
        content: Any = blocking() if kind == "sync" else not_blocking()
        client.request("POST", URL, content=content, headers=KEY)
    assert left()[0] == 1000 - 300


@pytest.mark.parametrize("include_usage", [True, False])
@kinds
def test_streams_are_asked_for_their_usage_if_that_is_wanted(
    kind: str, clock: ManualClock, include_usage: bool
) -> None:
    sent: list[httpx.Request] = []

    def model(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, stream=Parts(*STREAM))

    model.clock = clock  # type: ignore[attr-defined]
    streamed = {**ASKED, "stream": True}
    with client_of(kind, model, include_usage=include_usage) as client:
        call(client, streamed)
        call(client, {**ASKED, "max_tokens": 1})
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    assert json.loads(sent[0].content) == {**streamed, **options}
    assert sent[0].headers["content-length"] == str(len(sent[0].content))
    assert sent[0].headers["authorization"] == KEY["authorization"]
    assert "stream_options" not in json.loads(sent[1].content)


@kinds
def test_calls_that_no_rule_is_for_are_sent(kind: str, model: Model) -> None:
    with client_of(kind, model) as client:
        assert client.request("GET", "https://api.example.com/other").status_code == 200


@kinds
def test_requests_are_counted_by_rules_of_any_kind(kind: str, model: Model) -> None:
    text = "version: 1\nrules: [{id: r, match: {}, key_by: ip, limit: 1/hour}]"
    options = {"policy": read_policy(text), "retry": RetryPolicy(max_wait=0)}
    with client_of(kind, model, **options) as client:
        client.request("GET", URL)
        with pytest.raises(NotSentError):
            client.request("GET", URL)


@kinds
def test_slots_are_free_again_when_the_response_has_ended(kind: str, model: Model) -> None:
    text = "version: 1\nrules: [{id: s, match: {}, key_by: ip, concurrency: {limit: 1, ttl: 10m}}]"
    options = {"policy": read_policy(text), "retry": RetryPolicy(max_wait=0)}
    with client_of(kind, model, **options) as client:
        for _ in range(3):
            client.request("GET", URL)
    assert len(model.times) == 3


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a call waits."""
    event = asyncio.Event()

    class Noticed(Wait):
        async def aperform(self) -> bool:
            event.set()
            return await super().aperform()

    monkeypatch.setattr("headgate.clients.policy_limiter.Wait", Noticed)
    return event


ALMOST_ALL = {"model": "m-1", "max_tokens": 900}


def test_a_call_waits_for_one_in_flight_that_gives_back_what_it_did_not_use(
    waiting: asyncio.Event,
) -> None:
    class Slow(Parts):
        async def __aiter__(self) -> Any:
            await waiting.wait()
            yield PLAIN

    async def story() -> list[int]:
        inner = httpx.MockTransport(lambda _: httpx.Response(200, stream=Slow()))
        paced = AsyncPacedTransport(inner, policy=read_policy(POLICY))
        async with httpx.AsyncClient(transport=paced, headers=KEY) as client:
            calls = [client.post(URL, json=ALMOST_ALL) for _ in range(3)]
            return [one.status_code for one in await asyncio.gather(*calls)]

    assert asyncio.run(story()) == [200] * 3


def test_calls_that_wait_behind_others_wait_no_longer_than_they_may() -> None:
    async def story() -> list[Any]:
        release = asyncio.Event()

        async def hanging(_: httpx.Request) -> httpx.Response:
            await release.wait()
            return httpx.Response(200)

        paced = AsyncPacedTransport(
            httpx.MockTransport(hanging),
            policy=read_policy(POLICY),
            retry=RetryPolicy(max_wait=0.05),
        )
        async with httpx.AsyncClient(transport=paced, headers=KEY) as client:
            sent = asyncio.create_task(client.post(URL, json=ALMOST_ALL))
            await asyncio.sleep(0)
            waiting = [client.post(URL, json=ALMOST_ALL) for _ in range(3)]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            release.set()
            await sent
        return found

    found = asyncio.run(story())
    assert [getattr(one, "cause", one) for one in found] == ["policy"] * 3


def test_a_cancelled_call_is_charged_its_estimate_and_one_that_waits_nothing(
    waiting: asyncio.Event, store: MemoryStore, left: Left
) -> None:
    async def story() -> None:
        began = asyncio.Event()

        async def hanging(_: httpx.Request) -> httpx.Response:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        inner = httpx.MockTransport(hanging)
        paced = AsyncPacedTransport(inner, policy=read_policy(POLICY), store=store)
        async with httpx.AsyncClient(transport=paced, headers=KEY) as client:
            sent = asyncio.create_task(client.post(URL, json=ALMOST_ALL))
            await began.wait()
            waits = asyncio.create_task(client.post(URL, json=ALMOST_ALL))
            await waiting.wait()
            for task in (waits, sent):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(story())
    assert left()[0] == 1000 - 900 - PROMPT


class GoneStore(LoopStore):
    """Cannot be reached."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def run(self, operation: Any) -> Any:
        raise StoreError("gone")

    async def arun(self, operation: Any) -> Any:
        raise StoreError("gone")


@kinds
def test_without_its_store_the_failure_policy_of_the_rules_decides(
    kind: str, model: Model, clock: ManualClock
) -> None:
    closed = POLICY.replace(
        "cost: {llm: spend}", "cost: {llm: spend}, on_store_failure: fail_closed"
    )
    for text, causes in ((POLICY, []), (closed, ["store"])):
        found = []
        options = {"policy": read_policy(text), "store": GoneStore(clock)}
        with client_of(kind, model, **options) as client:
            try:
                call(client)
            except NotSentError as error:
                found.append(error.cause)
        assert found == causes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pace": "1/s"}, "pace and policy exclude each other"),
        ({"on_store_failure": "fail_closed"}, "that of a rule"),
        ({"policy": 3}, "expected a path or a Policy"),
        ({"include_usage": 1}, "expected True or False"),
    ],
)
def test_a_wrong_option_is_reported(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        PacedTransport(**{"policy": read_policy(POLICY), **options})


def test_rules_that_only_apps_can_obey_are_reported() -> None:
    text = "version: 1\nrules: [{id: f, match: {}, key_by: ip, fair: {slots: 2, max_wait: 1s}}]"
    with pytest.raises(OptionError, match="'f' has fair, which is for apps alone"):
        PacedTransport(policy=read_policy(text))
    with pytest.raises(OptionError, match="for httpx and httpx2 alone"):
        PacedAdapter(policy=read_policy(POLICY))


@kinds
def test_the_files_of_a_policy_are_read(kind: str, model: Model, tmp_path: Path) -> None:
    (tmp_path / "llm.yaml").write_text(POLICY)
    with client_of(kind, model, policy=tmp_path / "llm.yaml") as client:
        assert call(client).status_code == 200
