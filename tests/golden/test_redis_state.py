"""What is in Redis after scripted histories: the same for code that blocks and code that awaits."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest

from tests.golden import framework_apps as apps
from tests.golden.python_api import (
    Accuracy,
    AsyncRateLimiter,
    Concurrency,
    HeadgateError,
    Hit,
    LeakyQueue,
    ManualClock,
    RateLimiter,
    RedisStore,
    operation,
    outcome_figures,
)
from tests.golden.recorder import check_wire
from tests.golden.redis_state import RedisState, SlowError
from tests.golden.test_middlewares import CASES, SOFT
from tests.support.servers import ClusterSetup, RedisServer

NOW = 1_800_000_000
TRIES = 50

Step = tuple[Any, ...]
"""A verb and its arguments; `("advance", 0.6)` moves the clock."""

RATES = {
    "token bucket": "100/minute burst 20",
    "token bucket, slow": "6/2h",
    "gcra": "10/s burst 5 gcra",
    "leaky bucket": "60/minute leaky_bucket",
    "fixed window": "10/minute fixed_window",
    "sliding window counter": "10/minute sliding_window_counter",
    "sliding window counter in parts": "10/minute sliding_window_counter subwindows 6",
    "sliding window log": "10/minute sliding_window_log",
    "burst credits": "5/s peak 10/s for 30s",
    "three limits": "5/s; 100/minute fixed_window; 1000/hour sliding_window_counter",
}

HISTORY: list[Step] = [
    ("hit", "user:1"),
    ("hit", "user:1", 3),
    ("peek", "user:1", 2),
    ("hit", "user:1", 0),
    ("advance", 1.2),
    ("hit", "user:1"),
    ("hit", "user:1", 1_000_000),
    ("hit_many", [("user:1", 1), "user:2", ("user:2", 2)]),
    ("charge", "user:2", 30),
    ("hit", "user:2"),
    ("refund", "user:2", 27),
    ("advance", 120),
    ("hit", "user:2"),
    ("reserve", "a", "user:3", 2, 30),
    ("reserve", "b", "user:3", 1, 60),
    ("hit", "user:3"),
    ("commit", "a", 1),
    ("cancel", "b"),
    ("reserve", "c", "user:3", 1, 10),
    ("advance", 20),
    ("hit", "user:3"),
    ("commit", "c", 3),
    ("reserve", "d", "user:4", 1_000_000, 10),
    ("acquire", "user:4", 1, 1),
    ("advance", -3600),
    ("hit", "user:1"),
    ("advance", 7200),
    ("hit", "user:1"),
    ("reset", "user:1"),
    ("reset", "user:3"),
]

KEYS: list[Step] = [
    ("hit", "with:colon"),
    ("hit", "{braces}"),
    ("hit", "blank and \N{LATIN SMALL LETTER A WITH DIAERESIS}"),
    ("hit", "nul\0cr\r\n"),
    ("hit", "k" * 200),
    ("hit", "k" * 201),
]

SLOTS: list[Step] = [
    ("enter", "a", "job"),
    ("advance", 1),
    ("enter", "b", "job"),
    ("enter", "c", "job"),
    ("renew", "a"),
    ("leave", "b"),
    ("enter", "d", "job"),
    ("advance", 31),
    ("renew", "d"),
    ("enter", "e", "job"),
    ("leave", "e"),
    ("reset", "job"),
]

SHARED_SLOTS: list[Step] = [
    ("enter", "a", "job", "paid"),
    ("enter", "b", "job", "free"),
    ("enter", "c", "job", "free"),
    ("enter", "d", "job", "paid"),
    ("enter", "e", "job", "paid"),
    ("leave", "b"),
    ("enter", "f", "job", "paid"),
    ("advance", 10),
    ("renew", "a"),
    ("leave", "a"),
]

QUEUE: list[Step] = [
    ("hit", "job"),
    ("hit", "job"),
    ("hit", "job", 2),
    ("peek", "job"),
    ("hit", "job"),
    ("advance", 0.5),
    ("hit", "job"),
    ("reserve", "a", "job", 1, 10),
    ("cancel", "a"),
    ("acquire", "job", 1, 5),
    ("advance", 60),
    ("hit", "job"),
    ("reset", "job"),
]

TOGETHER: list[Step] = [
    ("hit_all", [("user:1", "5/minute", 1, None), ("org:1", "10/minute fixed_window", 2, "org")]),
    ("hit_all", [("user:1", "5/minute", 4, None), ("org:1", "10/minute fixed_window", 9, "org")]),
    ("hit_all", [("org:1", "20/minute fixed_window", 9, "org")]),
    ("hit_all", [("user:1", "3/hour sliding_window_log", 1, "log")]),
]

CHANGED = ("10/minute", "20/minute burst 40", "10/minute fixed_window", "10/hour fixed_window")
"""Limits that follow each other on the same counter."""

OTHERS: dict[str, tuple[Any, dict[str, Any], list[Step]]] = {
    "keys": ("10/s", {"namespace": "shop"}, KEYS),
    "keys of logs": ("10/s sliding_window_log", {"namespace": "50% off:#1"}, KEYS),
    "slots": (Concurrency(2, 30), {}, SLOTS),
    "slots with shares": (
        Concurrency(3, 30, shares=(("free", 1), ("paid", 2))),
        {"namespace": "jobs"},
        SHARED_SLOTS,
    ),
    "slots and a rate": (["5/s", Concurrency(2, 30)], {}, SLOTS),
    "queue": (LeakyQueue(rate=2, queue=3), {}, QUEUE),
    "different limits together": ("1/s", {"namespace": "shop"}, TOGETHER),
}

LENT: dict[str, Any] = {"key": "user:1", "limit": "100/minute burst 20"}
LOGGED: dict[str, Any] = {"key": "user:2", "limit": "10/minute sliding_window_log"}

OPERATIONS: dict[str, list[Step]] = {
    "leases": [
        ("lend", {**LENT, "holder": "n1", "most": 5, "ttl": 10}),
        ("lend", {**LENT, "holder": "n2", "most": 9, "ttl": 10, "cap": 12}),
        ("advance", 2),
        ("lend", {**LENT, "holder": "n1", "most": 4, "ttl": 10, "unused": 2}),
        ("lend", {**LENT, "cost": 0, "holder": "n2", "most": 0, "ttl": 10, "unused": 3}),
        ("advance", 11),
        ("lend", {**LENT, "holder": "n2", "most": 100, "ttl": 10}),
        ("lend", {**LOGGED, "holder": "n1", "most": 3, "ttl": 10}),
        ("lend", {**LOGGED, "holder": "n1", "most": 3, "ttl": 10, "unused": 3}),
    ],
    "licences": [
        ("lend", {**LENT, "holder": "n1", "most": 5, "ttl": 10, "is_charged": False, "cap": 8}),
        (
            "lend",
            {
                **LENT,
                "holder": "n1",
                "most": 5,
                "ttl": 10,
                "used": 3,
                "is_charged": False,
                "cap": 8,
                "unused": 1,
            },
        ),
        ("lend", {**LENT, "holder": "n2", "most": 5, "ttl": 10, "is_charged": False, "cap": 8}),
        ("advance", 20),
        (
            "lend",
            {
                **LENT,
                "holder": "n1",
                "most": 0,
                "ttl": 10,
                "used": 9,
                "reported": 3,
                "is_charged": False,
            },
        ),
    ],
    "holds that charge": [
        ("hold", {**LENT, "name": "a", "cost": 5, "ttl": 10, "charges_expired": True}),
        ("hold", {**LENT, "name": "b", "cost": 3, "ttl": 30, "charges_expired": True}),
        ("hold", {**LENT, "name": "c", "cost": 2, "ttl": 10}),
        ("advance", 12),
        ("take", {**LENT, "consume": False}),
        ("take", LENT),
        ("settle", {**LENT, "name": "a", "cost": 7}),
        ("settle", {**LENT, "name": "b", "cost": 1}),
        ("hold", {**LOGGED, "name": "a", "cost": 5, "ttl": 10, "charges_expired": True}),
        ("advance", 11),
        ("take", LOGGED),
        ("settle", {**LOGGED, "name": "a", "cost": 1}),
        ("hold", {**LOGGED, "name": "b", "cost": 5, "ttl": 10, "charges_expired": True}),
        ("advance", 60),
        ("take", LOGGED),
    ],
    "regions": [
        ("merge", {**LENT, "cost": 5, "origin": "eu/1", "window": 7, "ttl": 60}),
        ("merge", {**LENT, "cost": 5, "origin": "eu/1", "window": 7, "ttl": 61}),
        ("merge", {**LENT, "cost": 8, "origin": "eu/1", "window": 7, "ttl": 62}),
        ("merge", {**LENT, "cost": 2, "origin": "us/1", "window": 7, "ttl": 63}),
        ("merge", {**LENT, "cost": 3, "origin": "eu/1", "window": 8, "ttl": 64}),
        ("merge", {**LENT, "cost": 9, "origin": "eu/1", "window": 6, "ttl": 65}),
    ],
    "pressure": [
        ("publish", {"key": "factor", "origin": "a", "value": 0.7, "weight": 1.0, "ttl": 5}),
        ("publish", {"key": "factor", "origin": "b", "value": 0.5, "weight": 2.0, "ttl": 5}),
        ("publish", {"key": "factor", "origin": "c", "value": 0.1, "weight": 0.0, "ttl": 5}),
        ("advance", 6),
        ("publish", {"key": "factor", "origin": "b", "value": 1.0, "weight": 2.0, "ttl": 5}),
    ],
}

POLICIES: dict[str, tuple[dict[str, Any], Sequence[str | float]]] = {
    "rules": CASES["rules"],
    "rules and limits": CASES["rules and limits"],
    "slots and queues": (
        {"policy": SOFT, "namespace": "shop"},
        ["GET /slots/nested", "GET /shared/nested x-tier=paid", "GET /queue", "GET /full"],
    ),
    "only failures count": CASES["only failures count"],
    "two limits": ({**CASES["two limits"][0], "namespace": "shop"}, CASES["two limits"][1]),
    "a salt": ({**CASES["rules"][0], "salt": b"salt"}, ["GET /api/x x-api-key=k1"]),
}

ACCURACIES = {
    "units for each node": Accuracy(batch=10),
    "a share of the limit": Accuracy(max_overshoot=Fraction(1, 10)),
    "exchanged at intervals": Accuracy(sync_ns=100_000_000, batch=5),
}

OWN_CLOCK: dict[str, tuple[str, int]] = {
    "10/hour burst 20": ("hit", 362),
    "1/minute": ("hit", 62),
    "10/day fixed_window": ("hit", 86_402),
    "10/day sliding_window_counter": ("hit", 172_802),
    "10/day sliding_window_log": ("hit", 86_402),
    "10/hour": ("reserve", 422),
    "6/hour gcra": ("charge", 602),
    "60/hour leaky_bucket": ("charge", 62),
}
"""Limits, a verb, and the most seconds that what it writes may live."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.fixture(scope="module")
def state(url: str) -> Iterator[RedisState]:
    found = RedisState(url)
    yield found
    found.close()


async def awaited(value: Any) -> Any:
    """*value*, or what it comes to."""
    return await value if inspect.isawaitable(value) else value


def told(reply: Any) -> Any:
    """A reply as JSON types: the figures of decisions."""
    reply = outcome_figures(reply)
    if isinstance(reply, list | tuple) and not hasattr(reply, "remaining"):
        return [told(one) for one in reply]
    if reply is None or isinstance(reply, bool | int | float | str):
        return reply
    decision = getattr(reply, "decision", reply)
    if not hasattr(decision, "remaining"):
        return {name: told(getattr(reply, name)) for name in reply.__dataclass_fields__}
    figures = ("allowed", "remaining", "retry_after_ns", "reset_after_ns", "delay_ns")
    return " ".join(f"{name}={getattr(decision, name, None)}" for name in figures)


class Limiting:
    """Verbs of a limiter, of either kind, by name; what is held is remembered by a letter."""

    def __init__(self, limiter: Any) -> None:
        self.limiter = limiter
        self.held: dict[str, Any] = {}

    async def perform(self, verb: str, *given: Any) -> Any:
        """Carry one step out."""
        own = getattr(self, verb, None)
        reply = own(*given) if own else getattr(self.limiter, verb)(*given)
        return await awaited(reply)

    async def reserve(self, name: str, key: str, cost: int, ttl: int) -> Any:
        self.held[name] = await awaited(self.limiter.reserve(key, cost, ttl))
        return self.held[name]

    def commit(self, name: str, actual: int) -> Any:
        return self.held[name].commit(actual)

    def cancel(self, name: str) -> Any:
        return self.held[name].cancel()

    def enter(self, name: str, key: str, partition: str | None = None) -> Any:
        self.held[name] = self.limiter.slot(key, partition)
        return self.held[name].take()

    def renew(self, name: str) -> Any:
        return self.held[name].renew()

    def leave(self, name: str) -> Any:
        return self.held[name].release()

    def hit_all(self, hits: Sequence[tuple[str, str, int, str | None]]) -> Any:
        return self.limiter.hit_all([Hit(*one) for one in hits])


class Changing:
    """Limiters that follow each other on the same counters, by their number."""

    def __init__(self, limiters: Sequence[Any]) -> None:
        self.limiters = limiters

    async def perform(self, verb: str, number: int, cost: int) -> Any:
        """Carry one step out."""
        return getattr(self.limiters[number], verb)("user:1", cost)


class Operating:
    """Operations of a store, of either kind."""

    def __init__(self, store: Any) -> None:
        self.store = store

    async def perform(self, verb: str, given: dict[str, Any]) -> Any:
        """Carry one step out."""
        return await awaited(self.store.arun(operation(verb, given)))


async def played(subject: Any, clock: Any, steps: Sequence[Step], state: RedisState) -> Any:
    """What each of *steps* answered and changed."""
    found: list[Any] = []
    for verb, *given in steps:
        if verb == "advance":
            clock.advance(*given)
            found.append(f"advance {given[0]}")
            continue
        try:
            reply = told(await subject.perform(verb, *given))
        except HeadgateError as error:  # a reservation that was refused cannot be settled
            reply = f"raised {type(error).__name__}"
        shown = " ".join([verb, *map(str, given)])
        found.append({"step": shown, "reply": reply, **state.changes()})
    return found


def until_quick(play: Callable[[], Any]) -> Any:
    """What *play* returns, tried again where the machine was too busy to tell times exactly."""
    for _ in range(TRIES):
        try:
            return play()
        except SlowError:
            continue
    raise SlowError


def history_of(make: Callable[[Any], Any], steps: Sequence[Step], state: RedisState) -> Any:
    """Play *steps* in an empty database."""

    async def play() -> Any:
        clock = ManualClock(NOW)
        subject, close = make(clock)
        state.empty()
        try:
            return await played(subject, clock, steps, state)
        finally:
            await awaited(close())

    return until_quick(lambda: asyncio.run(play()))


def limiter_history(
    limits: Any, options: dict[str, Any], steps: Sequence[Step], url: str, state: RedisState
) -> Any:
    """What both kinds of limiters do and leave."""

    def blocking(clock: Any) -> Any:
        limiter = RateLimiter(limits, store=RedisStore(url, clock=clock), name="api", **options)
        return Limiting(limiter), limiter.close

    def awaiting(clock: Any) -> Any:
        limiter = AsyncRateLimiter(
            limits, store=RedisStore(url, clock=clock), name="api", **options
        )
        return Limiting(limiter), limiter.aclose

    found = history_of(blocking, steps, state)
    assert history_of(awaiting, steps, state) == found
    return found


def test_rates_leave_what_was_recorded(url: str, state: RedisState) -> None:
    found = {name: limiter_history(limit, {}, HISTORY, url, state) for name, limit in RATES.items()}
    check_wire("redis_rates", found)


def test_slots_queues_and_names_leave_what_was_recorded(url: str, state: RedisState) -> None:
    found = {
        name: limiter_history(limits, options, steps, url, state)
        for name, (limits, options, steps) in OTHERS.items()
    }
    check_wire("redis_others", found)


def test_a_changed_limit_goes_on_with_its_counter(url: str, state: RedisState) -> None:
    def make(clock: Any) -> Any:
        store = RedisStore(url, clock=clock)
        return Changing(
            [RateLimiter(limit, store=store, name="api") for limit in CHANGED]
        ), store.close

    steps = [("hit", number, 3) for number in (0, 1, 0, 2, 3, 0, 2)]
    check_wire("redis_changed_limits", history_of(make, steps, state))


def test_operations_leave_what_was_recorded(url: str, state: RedisState) -> None:
    def blocking(clock: Any) -> Any:
        store = RedisStore(url, clock=clock)
        return Operating(store), store.close

    def awaiting(clock: Any) -> Any:
        store = RedisStore(url, clock=clock)
        return Operating(store), store.aclose

    found = {}
    for name, steps in OPERATIONS.items():
        found[name] = history_of(blocking, steps, state)
        assert history_of(awaiting, steps, state) == found[name]
    check_wire("redis_operations", found)


def test_policies_leave_what_was_recorded(url: str, state: RedisState) -> None:
    found = {}
    for name, (options, steps) in POLICIES.items():
        states = []
        for app in (apps.wsgi, apps.asgi):
            state.empty()
            app({**options, "store": url}, steps)
            states.append(state.values())
        assert states[0] == states[1]
        found[name] = states[0]
    check_wire("redis_policies", found)


def test_what_is_written_on_the_clock_of_the_server_lives_no_longer_than_needed(
    url: str, state: RedisState
) -> None:
    found = {}
    for limit, (verb, most) in OWN_CLOCK.items():
        state.empty()
        with RateLimiter(limit, store=url, name="api") as limiter:
            getattr(limiter, verb)("user:1", 1)
        kinds = state.kinds()
        assert all(0 < left <= most * 1000 for _, left in kinds.values()), (limit, kinds)
        found[limit] = {key: f"{kind}, at most {most} s" for key, (kind, _) in kinds.items()}
    check_wire("redis_own_clock", found)


def test_what_was_used_under_leases_is_all_there_in_the_end(url: str, state: RedisState) -> None:
    found = {}
    for name, accuracy in ACCURACIES.items():
        clock = ManualClock(NOW)
        state.empty()
        store = RedisStore(url, clock=clock)
        with RateLimiter(
            "100/minute fixed_window", store=store, name="api", accuracy=accuracy
        ) as limiter:
            for _ in range(12):
                assert limiter.hit("user:1")
                clock.advance(0.1)
        found[name] = state.values()["=api:user:1"]
    check_wire("redis_leases", found)


def test_keys_in_a_cluster_have_a_tag() -> None:
    with ClusterSetup() as cluster:
        with RateLimiter(
            "5/hour; 9/hour sliding_window_log", store=cluster.url, name="api"
        ) as limiter:
            for number in range(20):
                limiter.hit(f"user:{number}")
        found = [key for node in cluster.primaries() for key in node.cli("keys", "*").split()]
    check_wire("redis_cluster", sorted(found))
