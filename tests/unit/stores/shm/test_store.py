"""The store in shared memory: several of one name, forks, threads, closing."""

import asyncio
import fcntl
import os
import signal
import stat
import threading
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.limits import Concurrency, FixedWindow, SlidingWindowLog, TokenBucket
from headgate.stores import Store
from headgate.stores.operations import Check, GrantLease, Take
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of, read_url
from headgate.testing import ManualClock
from tests.support.shm_stores import fresh_store, fresh_url

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

YEAR = 365 * 86_400
HUNDRED = FixedWindow(100, 50 * YEAR)


def limiter(store: Store, limits: str | FixedWindow = HUNDRED) -> RateLimiter:
    return RateLimiter(limits, store=store, name="api", on_store_failure="fail_closed")


def in_child(work: Callable[[], bool]) -> bool:
    """What *work* says in a forked process; one that hangs is ended, and says no."""
    pid = os.fork()
    if not pid:
        signal.alarm(30)
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_two_stores_of_one_name_in_one_process_share_their_counters() -> None:
    with fresh_url() as url:
        first, second = ShmStore(url), ShmStore(url)
        assert limiter(first).hit("key", 60).remaining == 40
        assert limiter(second).hit("key", 30).remaining == 10
        first.close()
        assert limiter(second).hit("key", 1).remaining == 9
        second.close()


def test_counters_outlive_the_store_that_made_them() -> None:
    with fresh_url() as url:
        with limiter(ShmStore(url)) as gone:
            gone.hit("key", 60)
        with limiter(ShmStore(url)) as again:
            assert again.peek("key").remaining == 40


def test_names_do_not_share_counters() -> None:
    with fresh_store() as one, fresh_store() as other:
        limiter(one).hit("key", 60)
        assert limiter(other).peek("key").remaining == 100


def test_a_forked_process_shares_the_counters_of_its_parent() -> None:
    with fresh_store(options="size=2MB&timeout=10") as store:
        shared = limiter(store)
        shared.hit("key", 10)
        assert in_child(lambda: shared.hit("key", 20).remaining == 70)
        assert shared.hit("key", 1).remaining == 69


def test_a_fork_while_a_thread_has_its_turn_does_not_stop_the_child() -> None:
    with fresh_store(options="size=2MB&timeout=10") as store:
        shared = limiter(store)
        shared.hit("key")
        is_over = threading.Event()

        def busy() -> None:
            while not is_over.is_set():
                shared.hit("another key")

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            ends = [in_child(lambda: shared.hit("key").allowed) for _ in range(8)]
        finally:
            is_over.set()
            thread.join()
        assert all(ends)
        assert shared.peek("key").remaining == 91


def test_threads_share_the_quota_exactly() -> None:
    with fresh_store(options="size=2MB&timeout=10") as store:
        shared = limiter(store)
        admitted: list[bool] = []

        def ask() -> None:
            admitted.extend(shared.hit("key").allowed for _ in range(50))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(admitted), sum(admitted)) == (200, 100)


def test_a_closed_store_says_so() -> None:
    with fresh_store() as store:
        shared = limiter(store)
        shared.hit("key")
        store.close()
        with pytest.raises(StoreError, match="closed") as caught:
            store.run(Take((Check("group", "key", HUNDRED),)))
        assert caught.value.reason == "closed"
        assert not shared.hit("key"), "the failure policy decides"


def test_an_operation_that_it_does_not_know_is_refused() -> None:
    with fresh_store() as store, pytest.raises(UsageError, match="GrantLease"):
        store.run(GrantLease(Check("group", "key", HUNDRED), "holder", 1, 10**9))
    assert not store.grants_leases


def test_a_clock_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="time_ns"):
        ShmStore("shm://name", clock=lambda: 1.5)  # type: ignore[arg-type, return-value]


def test_the_time_is_the_same_for_all_that_open_it() -> None:
    with fresh_url() as url:
        one, other = ShmStore(url), ShmStore(url)
        other._files._offset += 10**9
        for store in (one, other):
            store.run(Take((Check("group", "key", HUNDRED),)))
        assert one._files._offset == other._files._offset
        assert one.clock() <= other.clock() <= one.clock()
        one.close()
        other.close()


def test_async_hits_are_decided_on_the_same_counters() -> None:
    async def ask(url: str) -> list[bool]:
        shared = AsyncRateLimiter(
            HUNDRED, store=ShmStore(url), name="api", on_store_failure="fail_closed"
        )
        asked = [await shared.hit("key", 30) for _ in range(4)]
        await shared.aclose()
        return [decision.allowed for decision in asked]

    with fresh_url() as url:
        assert asyncio.run(ask(url)) == [True, True, True, False]
        with limiter(ShmStore(url)) as shared:
            assert shared.peek("key").remaining == 10


def test_requests_are_answered_while_the_store_cannot_be_asked() -> None:
    async def status(app: RateLimitMiddleware) -> int:
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        client = {"client": ("192.0.2.1", 1), "headers": [], "path": "/", "method": "GET"}
        await app({"type": "http", **client}, receive, send)
        return int(sent[0]["status"])

    async def answer(scope: object, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(url: str) -> list[int]:
        app = RateLimitMiddleware(answer, limits="3/hour", store=url, name="api")
        before = await status(app)
        other = os.open(path_of(read_url(url).name), os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        meanwhile = await status(app)
        os.close(other)
        return [before, meanwhile, *[await status(app) for _ in range(4)]]

    with fresh_url("size=1MB&timeout=0.001") as url:
        assert asyncio.run(ask(url)) == [200, 200, 200, 200, 429, 429]


def test_the_file_belongs_to_its_user_alone() -> None:
    with fresh_store() as store:
        limiter(store).hit("key")
        path = path_of(store._files.address.name)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert b"key" not in path.read_bytes(), "keys are not kept, only their hashes"


def test_another_size_than_that_of_the_store_is_told_and_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with fresh_url() as url:
        with limiter(ShmStore(url)) as shared:
            shared.hit("key", 60)
        for options in ("", "?timeout=1", "?size=2MB"):
            with limiter(ShmStore(url.partition("?")[0] + options)) as shared:
                assert shared.peek("key").remaining == 40
        assert not caplog.records
        with limiter(ShmStore(url.partition("?")[0] + "?size=3MB")) as shared:
            assert shared.peek("key").remaining == 40
        assert "size=2097152B, which is used" in caplog.text


def test_slots_and_counts_of_one_name_stand_side_by_side() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock) as store:
        slots = RateLimiter(Concurrency(2, 60), store=store, name="n")
        rates = RateLimiter(TokenBucket(10, 1), store=store, name="n")
        with slots.slot("key") as slot:
            assert slot
            assert rates.hit("key", 4).remaining == 6
            assert slots.peek("key").remaining == 1
        rates.reset("key")
        assert rates.peek("key").remaining == 10


def test_a_log_grows_and_shrinks_over_many_blocks() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock) as store:
        log = RateLimiter(
            SlidingWindowLog(400, 1), store=store, name="log", on_store_failure="fail_closed"
        )
        for round_number in range(3):
            for asked in range(400):
                assert log.hit("key").remaining == 399 - asked, round_number
                clock.advance_ns(1_000)
            assert not log.hit("key")
            clock.advance_ns(10**9)
