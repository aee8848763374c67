"""The circuit breaker in front of a store that fails when the test says so, in both drivers."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import STORE_FAULTS, StoreError, StoreFault
from headgate.limits import Accuracy, DenyAll, Unlimited
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.circuit_breaker.breaker import COUNTED
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, GrantLease, PublishValue, Take, TakeEach, keys_of
from headgate.units import SECOND
from tests.support.failing_stores import LIMIT, PLACE, Broken, Failing, taking

if TYPE_CHECKING:
    from headgate.stores.operations import Operation
    from tests.support.store_calls import Calls


class TestClosed:
    def test_operations_and_prepared_takes_reach_the_store(self, calls: Calls) -> None:
        one = Broken(calls)
        assert one.prepared_reason() is None
        assert one.run(taking())[0].remaining == 999_998
        assert one.inner.calls == 2
        assert one.store.health.metrics.calls.value >= 2

    def test_a_store_that_does_not_wait_still_does_not(self) -> None:
        store = CircuitBreakerStore(MemoryStore())
        prepared = store.prepare(PLACE)
        (outcome,) = prepared.atake(("key",), (1,))  # type: ignore[misc] # a tuple, at once
        assert outcome.remaining == 999_999
        assert not store.waits
        assert not store.may_fail

    def test_it_has_the_properties_of_the_inner_store(self, calls: Calls) -> None:
        inner = Failing(clock=lambda: 7)
        store = CircuitBreakerStore(inner)
        assert store.clock is inner.clock
        assert (store.waits, store.may_fail) == (inner.waits, inner.may_fail)
        assert store.grants_leases is inner.grants_leases
        store.set_accuracies({"g": Accuracy(batch=2)})
        calls.close(store)
        assert inner.accuracies == {"g": Accuracy(batch=2)}
        assert inner.is_closed
        assert "Failing" in repr(store)


class TestOutages:
    def test_an_open_circuit_makes_no_calls(self, calls: Calls) -> None:
        one = Broken(calls)
        one.open()
        made = one.inner.calls
        for _ in range(10):
            assert one.reason() == one.prepared_reason() == "circuit_open"
        with pytest.raises(StoreError, match=r"somewhere:1 is open for another .* ms.*timeout"):
            one.run(taking())
        assert one.inner.calls == made

    def test_an_open_circuit_says_why_and_for_how_long(self, calls: Calls) -> None:
        one = Broken(calls)
        assert one.store.health.outage() is None
        one.open()
        why, wait_ns = one.store.health.outage() or ("", 0)
        assert why == "timeout"
        assert wait_ns > 0
        one.now_ns += wait_ns
        assert one.store.health.outage() == ("timeout", 0), "a probe may be made"
        one.inner.recover()
        assert one.reason() is None
        assert one.store.health.outage() is None

    def test_what_needs_no_store_passes_an_open_circuit_and_does_not_close_it(
        self, calls: Calls
    ) -> None:
        one = Broken(calls)
        one.open()
        one.inner.recover()
        for limit in (DenyAll(), Unlimited()):
            is_allowed = limit == Unlimited()
            (outcome,) = one.run(Take((Check("g", "key", limit),)))
            assert outcome.allowed is is_allowed
            (outcome,) = one.store.prepare([("g", limit)]).take(("key",), (1,))
            assert outcome.allowed is is_allowed
        assert one.store.health.is_open
        mixed = Check("g", "key", Unlimited()), Check("h", "key", LIMIT)
        with pytest.raises(StoreError, match="is open"):
            one.run(Take(mixed))

    @pytest.mark.parametrize("is_prepared", [True, False])
    def test_the_first_call_after_the_pause_is_the_probe_and_it_recovers(
        self, calls: Calls, *, is_prepared: bool
    ) -> None:
        one = Broken(calls)
        one.open()
        one.inner.recover()
        one.now_ns += 10 * SECOND
        assert (one.prepared_reason() if is_prepared else one.reason()) is None
        one.chance = 0.99
        assert one.reason() == "circuit_open"
        one.now_ns += 10 * SECOND
        assert one.reason() is None
        assert [change.after for change in one.changes] == [
            "open", "half_open", "ramping", "closed",
        ]  # fmt: skip
        assert one.store.health.state == "closed"
        assert not one.store.health.is_open

    @pytest.mark.parametrize("reason", STORE_FAULTS)
    def test_failures_of_the_whole_store_open_it(self, calls: Calls, reason: StoreFault) -> None:
        one = Broken(calls)
        one.inner.fail(reason)
        for _ in range(50):
            assert one.reason() in (reason, "circuit_open")
        assert one.store.health.is_open == (reason in COUNTED)

    def test_a_prepared_take_that_succeeds_restarts_the_count(self, calls: Calls) -> None:
        one = Broken(calls)
        for _ in range(5):
            one.inner.fail()
            for _ in range(2):
                assert one.prepared_reason() == "timeout"
            one.inner.recover()
            assert one.prepared_reason() is None
        assert not one.store.health.is_open

    def test_a_probe_that_is_refused_has_been_answered(self, calls: Calls) -> None:
        one = Broken(calls)
        one.open()
        one.inner.fail("refused")
        one.now_ns += 10 * SECOND
        assert one.reason() == "refused"
        assert one.changes[-1].after == "ramping"

    @pytest.mark.parametrize("odd", [KeyboardInterrupt(), ValueError("x"), SystemExit()])
    def test_a_probe_without_a_result_is_followed_by_another(self, odd: BaseException) -> None:
        one = Broken()
        one.open()
        one.inner.raised = odd
        one.now_ns += 10 * SECOND
        for _ in range(3):
            with pytest.raises(type(odd)):
                one.prepared_reason()
            with pytest.raises(type(odd)):
                one.run(taking())
        one.inner.recover()
        assert one.reason() is None

    def test_a_listener_may_call_the_store(self) -> None:
        one = Broken()
        found: list[str | None] = []
        one.store.health.on_change(lambda _: found.append(one.reason()))
        one.open()
        assert found == ["circuit_open"]


class TestEventLoops:
    @pytest.mark.parametrize("is_prepared", [True, False])
    def test_a_probe_that_is_cancelled_frees_its_place(self, *, is_prepared: bool) -> None:
        async def main() -> None:
            one = Broken()
            one.open()
            one.inner.recover()
            one.now_ns += 10 * SECOND
            one.inner.hangs = asyncio.Event()
            atake = one.store.prepare(PLACE).atake
            call: Any = atake(("key",), (1,)) if is_prepared else one.store.arun(taking())
            probe = asyncio.ensure_future(call)
            await asyncio.sleep(0)
            assert one.reason() == "circuit_open"
            probe.cancel()
            one.inner.hangs.set()
            with pytest.raises(asyncio.CancelledError):
                await probe
            one.inner.hangs = None
            await one.store.arun(taking())

        asyncio.run(main())

    def test_a_probe_whose_loop_has_ended_frees_its_place(self) -> None:
        one = Broken()
        one.open()
        one.inner.recover()
        one.now_ns += 10 * SECOND
        one.inner.hangs = asyncio.Event()

        async def hang() -> None:
            asyncio.ensure_future(one.store.arun(taking()))  # noqa: RUF006 (it is to be lost)
            await asyncio.sleep(0)

        asyncio.run(hang())
        one.inner.hangs = None
        assert one.reason() is None

    def test_calls_that_fail_together_are_one_incident(self) -> None:
        async def main() -> None:
            one = Broken()
            one.inner.hangs = asyncio.Event()
            one.inner.fail("unreachable")
            atake = one.store.prepare(PLACE).atake
            pending: list[Any] = [atake(("key",), (1,)) for _ in range(100)]
            gathered = asyncio.gather(*pending, return_exceptions=True)
            await asyncio.sleep(0)
            one.inner.hangs.set()
            found = await gathered
            assert {getattr(one, "reason", None) for one in found} == {"unreachable"}
            assert not one.store.health.is_open

        asyncio.run(main())


class TestParts:
    def test_a_part_that_fails_fails_its_own_keys_alone(self, calls: Calls) -> None:
        one = Broken(calls, has_parts=True)
        one.inner.spared = frozenset({"b", "c"})
        one.open("a")
        assert one.reason(taking("a")) == one.prepared_reason("a") == "circuit_open"
        assert one.reason(taking("b")) is one.prepared_reason("b") is None
        assert one.reason(taking("b", "c")) is None
        assert one.reason(taking("a", "b")) == "circuit_open"

    def test_each_take_has_its_own_result(self, calls: Calls) -> None:
        one = Broken(calls, has_parts=True)
        one.inner.spared = frozenset({"b"})
        one.open("a")
        one.inner.recover()
        first, second, third = one.run(TakeEach((taking("b"), taking("a"), taking("b"))))
        assert not isinstance(first, StoreError)
        assert not isinstance(third, StoreError)
        assert isinstance(second, StoreError)
        assert second.reason == "circuit_open"
        assert (first[0].remaining, third[0].remaining) == (999_999, 999_998)
        assert one.reason(TakeEach((taking("a"), taking("a")))) == "circuit_open"
        assert one.run(TakeEach(())) == ()

    def test_the_error_of_one_take_counts_for_its_own_part(self, calls: Calls) -> None:
        class PartlyFailing(Failing):
            def run(self, operation: Operation[Any]) -> Any:
                if isinstance(operation, TakeEach):
                    return tuple(
                        StoreError("no reply", reason="timeout")
                        if take.checks[0].key == "a"
                        else self.inner.run(take)
                        for take in operation.takes
                    )
                return super().run(operation)

        store = CircuitBreakerStore(PartlyFailing(has_parts=True))
        both = TakeEach((taking("a"), taking("b")))
        found = [calls.run(store, both)[0] for _ in range(4)]
        reasons = [one.reason for one in found if isinstance(one, StoreError)]
        assert reasons == ["timeout"] * 3 + ["circuit_open"]
        assert calls.run(store, taking("b"))[0].allowed

    def test_of_several_parts_the_one_that_failed_before_is_the_cause(self) -> None:
        one = Broken(has_parts=True)
        one.inner.spared = frozenset({"b"})
        one.open("a")
        for _ in range(10):
            one.now_ns += 10 * SECOND
            assert one.reason(taking("a", "b")) == "timeout"
        assert one.reason(taking("b")) is None

    def test_a_call_that_one_part_rejects_frees_the_probe_of_another(self) -> None:
        one = Broken(has_parts=True)
        one.open("a")
        one.now_ns += 10 * SECOND
        while one.reason(taking("b")) != "circuit_open":
            pass
        assert one.reason(taking("a", "b")) == "circuit_open"
        one.inner.recover()
        assert one.reason(taking("a")) is None

    def test_the_circuit_of_a_part_without_calls_is_closed(self) -> None:
        one = Broken(has_parts=True)
        one.open("a")
        one.now_ns += 3 * SECOND
        assert one.store.health.is_open  # its pause was over only a moment ago
        one.now_ns += SECOND
        assert one.store.health.state == "closed"
        assert [change.after for change in one.changes] == ["open", "closed"]

    def test_the_circuit_of_a_whole_store_stays_open_without_calls(self) -> None:
        one = Broken()
        one.open()
        one.now_ns += 3_600 * SECOND
        assert one.store.health.is_open

    def test_their_number_is_bounded(self) -> None:
        inner = Failing()
        inner.part_of = lambda key: key
        store = CircuitBreakerStore(inner)
        for n in range(1_000):
            store.run(taking(f"key-{n}"))
        assert len(store.health.breakers) <= 64
        inner.fail()
        for n in range(1_000):
            for _ in range(3):
                with pytest.raises(StoreError):
                    store.run(taking(f"key-{n}"))
        assert len(store.health.breakers) <= 64

    @pytest.mark.parametrize(
        "operation",
        [
            GrantLease(Check("g", "a", LIMIT), "me", 1, SECOND),
            PublishValue("g", "a", "me", 0.5, 2, SECOND),
            Take((Check("g", "a", LIMIT),)),
            TakeEach((Take((Check("g", "a", LIMIT),)),)),
        ],
    )
    def test_the_keys_of_every_operation_are_known(self, operation: Operation[Any]) -> None:
        assert list(keys_of(operation)) == ["a"]


class TestThreads:
    def test_one_of_many_is_the_probe(self) -> None:
        one = Broken()
        one.open()
        one.inner.recover()
        one.now_ns += 10 * SECOND
        one.chance = 0.99
        made, start = one.inner.calls, threading.Barrier(16)
        reasons: list[str | None] = []

        def call() -> None:
            start.wait()
            reasons.append(one.reason())

        threads = [threading.Thread(target=call) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.inner.calls == made + 1
        assert sorted(map(str, reasons)) == ["None"] + ["circuit_open"] * 15

    def test_a_forked_process_starts_with_a_closed_circuit(self) -> None:
        one = Broken()
        one.open()
        one.inner.recover()
        child = os.fork()
        if child == 0:
            os._exit(0 if one.reason() is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert one.reason() == "circuit_open"
