"""The guarded store for callers that may block, on a store that fails when it is told to."""

from __future__ import annotations

import os
import threading

import pytest

from headgate import RateLimiter
from headgate.errors import STORE_FAULTS, KeyInvalidError, StoreError, StoreFault
from headgate.stores.base import Hit
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.circuit_breaker.breaker import COUNTED
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Draw, GrantLease, Pour, Take, TakeEach
from headgate.units import SECOND
from tests.support.failing_stores import LIMIT, PLACE, Failing, Guarded, taking


class TestWhileAllIsWell:
    def test_every_way_leads_to_the_store(self) -> None:
        one = Guarded()
        hit = one.store.hitter(PLACE)
        assert hit is not None
        assert hit("key", 1).remaining == 999_999
        assert one.store.run(taking())[0].remaining == 999_998
        assert one.store.hit_all([Hit("key", LIMIT)]).allowed
        quick = one.store.take_quickly((Check("g", "key", LIMIT),))
        assert quick is not None
        assert quick[0].remaining == 999_997
        assert one.store.guard.board.calls >= 3

    def test_what_is_wrapped_is_passed_on(self) -> None:
        failing = Failing(clock=lambda: 7)
        store = CircuitBreakerStore(failing)
        assert store.store is failing
        assert store.clock() == 7
        assert store.may_fail is failing.may_fail
        assert store.grants_leases is failing.grants_leases
        store.adopt({})
        store.close()
        assert failing.adopted == {}
        assert failing.is_closed
        assert not hasattr(CircuitBreakerStore(Failing()), "clock")
        assert not CircuitBreakerStore(MemoryStore()).may_fail
        assert "Failing" in repr(store)

    def test_a_limiter_works_on_it(self) -> None:
        one = Guarded()
        with RateLimiter("2/h", store=one.store) as limiter:
            assert [limiter.hit("k").allowed for _ in range(3)] == [True, True, False]


class TestOutages:
    def test_a_store_that_fails_is_left_alone(self) -> None:
        one = Guarded()
        one.open()
        calls = one.trouble.calls
        hit = one.store.hitter(PLACE)
        assert hit is not None
        for _ in range(10):
            assert one.reason() == "circuit_open"
            with pytest.raises(StoreError, match=r"somewhere:1.*timeout") as caught:
                hit("key", 1)
            assert caught.value.reason == "circuit_open"
        assert one.trouble.calls == calls
        assert one.store.take_quickly((Check("g", "key", LIMIT),)) is None
        assert one.store.since_ns == one.watch.now_ns

    def test_the_first_call_after_the_pause_is_the_probe_and_it_recovers(self) -> None:
        one = Guarded()
        one.open()
        one.trouble.heal()
        one.watch.now_ns += 10 * SECOND
        assert one.reason() is None
        one.watch.odds = 0.99
        assert one.reason() == "circuit_open"
        one.watch.now_ns += 10 * SECOND
        assert one.reason() is None
        assert [change.after for change in one.changes] == [
            "open", "half_open", "ramping", "closed",
        ]  # fmt: skip
        assert one.store.since_ns is None
        assert not one.store.is_open

    @pytest.mark.parametrize("reason", STORE_FAULTS)
    def test_what_says_something_of_the_store_counts(self, reason: StoreFault) -> None:
        one = Guarded()
        one.trouble.fail(reason)
        for _ in range(50):
            assert one.reason() in (reason, "circuit_open")
        assert one.store.is_open == (reason in COUNTED)

    def test_a_success_of_the_short_cut_begins_the_count_anew(self) -> None:
        one = Guarded()
        hit = one.store.hitter(PLACE)
        assert hit is not None
        for _ in range(5):
            one.trouble.fail()
            for _ in range(2):
                with pytest.raises(StoreError):
                    hit("key", 1)
            one.trouble.heal()
            hit("key", 1)
        assert not one.store.is_open

    def test_a_probe_that_is_refused_has_been_answered(self) -> None:
        one = Guarded()
        one.open()
        one.trouble.fail("refused")
        one.watch.now_ns += 10 * SECOND
        assert one.reason() == "refused"
        assert one.changes[-1].after == "ramping"

    @pytest.mark.parametrize("odd", [KeyboardInterrupt(), ValueError("x"), SystemExit()])
    def test_a_probe_that_comes_to_nothing_is_followed_by_another(self, odd: BaseException) -> None:
        one = Guarded()
        one.open()
        one.trouble.raised = odd
        one.watch.now_ns += 10 * SECOND
        hit = one.store.hitter(PLACE)
        assert hit is not None
        for _ in range(3):
            with pytest.raises(type(odd)):
                hit("key", 1)
            with pytest.raises(type(odd)):
                one.store.run(taking())
        one.trouble.heal()
        assert one.reason() is None

    def test_what_makes_no_sense_is_no_failure(self) -> None:
        one = Guarded(has_parts=True)
        hit = one.store.hitter(PLACE)
        assert hit is not None
        for _ in range(10):
            with pytest.raises(KeyInvalidError):
                hit("", 1)
            with pytest.raises(KeyInvalidError):
                hit(None, 1)  # type: ignore[arg-type] # that is what is tried
        assert not one.store.is_open

    def test_who_no_longer_listens_is_not_told(self) -> None:
        one = Guarded()
        heard: list[object] = []
        forget = one.store.on_change(heard.append)
        forget()
        one.open()
        assert heard == []
        assert len(one.changes) == 1

    def test_who_is_told_may_ask_the_store(self) -> None:
        one = Guarded()
        found: list[str | None] = []
        one.store.on_change(lambda _: found.append(one.reason()))
        one.open()
        assert found == ["circuit_open"]


class TestParts:
    def test_a_part_that_fails_fails_its_own_keys_alone(self) -> None:
        one = Guarded(has_parts=True)
        one.trouble.fail()
        one.trouble.spares = frozenset({"b", "c"})
        while not one.store.is_open:
            assert one.reason(taking("a")) == "timeout"
        assert one.reason(taking("a")) == "circuit_open"
        assert one.reason(taking("b")) is None
        assert one.reason(taking("b", "c")) is None
        assert one.reason(taking("a", "b")) == "circuit_open"
        hit = one.store.hitter(PLACE)
        assert hit is not None
        assert hit("b", 1).allowed
        with pytest.raises(StoreError):
            hit("a", 1)

    def test_each_take_is_for_itself(self) -> None:
        one = Guarded(has_parts=True)
        one.trouble.fail()
        one.trouble.spares = frozenset({"b"})
        while not one.store.is_open:
            assert one.reason(taking("a")) == "timeout"
        one.trouble.heal()
        first, second, third = one.store.run(TakeEach((taking("b"), taking("a"), taking("b"))))
        assert not isinstance(first, StoreError)
        assert not isinstance(third, StoreError)
        assert isinstance(second, StoreError)
        assert second.reason == "circuit_open"
        assert (first[0].remaining, third[0].remaining) == (999_999, 999_998)
        assert one.reason(TakeEach((taking("a"), taking("a")))) == "circuit_open"
        assert one.store.run(TakeEach(())) == ()

    def test_an_error_in_its_place_is_noted_for_its_own_part(self) -> None:
        class PartlyFailing(Failing):
            def run(self, operation):  # type: ignore[no-untyped-def] # as its parent
                if isinstance(operation, TakeEach):
                    return tuple(
                        StoreError("told to", reason="timeout")
                        if take.checks[0].key == "a"
                        else self.inner.run(take)
                        for take in operation.takes
                    )
                return super().run(operation)

        store = CircuitBreakerStore(PartlyFailing(has_parts=True))
        both = TakeEach((taking("a"), taking("b")))
        found = [store.run(both)[0] for _ in range(4)]
        reasons = [one.reason for one in found if isinstance(one, StoreError)]
        assert reasons == ["timeout"] * 3 + ["circuit_open"]
        assert store.run(taking("b"))[0].allowed

    def test_of_several_parts_the_one_that_failed_before_is_to_blame(self) -> None:
        one = Guarded(has_parts=True)
        one.trouble.fail()
        one.trouble.spares = frozenset({"b"})
        while not one.store.is_open:
            assert one.reason(taking("a")) == "timeout"
        for _ in range(10):
            one.watch.now_ns += 10 * SECOND
            assert one.reason(taking("a", "b")) == "timeout"
        assert one.reason(taking("b")) is None

    def test_who_is_refused_by_one_part_gives_the_probe_of_another_back(self) -> None:
        one = Guarded(has_parts=True)
        one.trouble.fail()
        while one.reason(taking("a")) != "circuit_open":
            pass
        one.watch.now_ns += 10 * SECOND
        while one.reason(taking("b")) != "circuit_open":
            pass
        assert one.reason(taking("a", "b")) == "circuit_open"
        one.trouble.heal()
        assert one.reason(taking("a")) is None

    def test_a_part_that_nobody_asks_any_more_is_forgotten(self) -> None:
        one = Guarded(has_parts=True)
        one.trouble.fail()
        while one.reason(taking("a")) != "circuit_open":
            pass
        one.watch.now_ns += 3 * SECOND
        assert one.store.is_open  # its pause was over only a moment ago
        one.watch.now_ns += SECOND
        assert one.store.guard.state == "closed"
        assert one.store.since_ns is None
        assert [change.after for change in one.changes] == ["open", "closed"]

    def test_the_whole_is_not_forgotten_where_there_are_no_parts(self) -> None:
        one = Guarded()
        one.open()
        one.watch.now_ns += 3_600 * SECOND
        assert one.store.is_open

    def test_their_number_is_bounded(self) -> None:
        one = Guarded()
        one.failing.part_of = lambda key: key
        store = CircuitBreakerStore(one.failing)
        for n in range(1_000):
            store.run(taking(f"key-{n}"))
        assert len(store.guard.breakers) <= 64
        one.trouble.fail()
        for n in range(1_000):
            for _ in range(3):
                with pytest.raises(StoreError):
                    store.run(taking(f"key-{n}"))
        assert len(store.guard.breakers) <= 64

    @pytest.mark.parametrize(
        "operation",
        [
            GrantLease(Check("g", "a", LIMIT), "me", 1, SECOND),
            Pour("g", "a", 1, SECOND),
            Draw("g", "a", 1),
            Take((Check("g", "a", LIMIT),)),
        ],
    )
    def test_the_part_of_every_operation_is_known(self, operation: Take) -> None:
        guard = Guarded(has_parts=True).store.guard
        assert guard.passing(operation).breakers == (guard.breaker_of("a"),)


class TestThreads:
    def test_one_of_many_is_the_probe(self) -> None:
        one = Guarded()
        one.open()
        one.trouble.heal()
        one.watch.now_ns += 10 * SECOND
        one.watch.odds = 0.99
        calls, start = one.trouble.calls, threading.Barrier(16)
        reasons: list[str | None] = []

        def ask() -> None:
            start.wait()
            reasons.append(one.reason())

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.trouble.calls == calls + 1
        assert sorted(map(str, reasons)) == ["None"] + ["circuit_open"] * 15

    def test_a_forked_process_begins_anew(self) -> None:
        one = Guarded()
        one.open()
        one.trouble.heal()
        child = os.fork()
        if child == 0:
            os._exit(0 if one.reason() is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert one.reason() == "circuit_open"
