"""Weighted fair queueing in front of a backend: `FairGate` for threads, `AsyncFairGate` for loops.

Both are facades of `GateState`, which holds the requests and the use cases.
"""

from __future__ import annotations

import time
from asyncio import get_running_loop
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from headgate.errors import OptionError, UsageError
from headgate.fork import watch_forks
from headgate.observability.metrics import METRICS
from headgate.overload.fair_queue import checked_weight
from headgate.overload.gate_options import (
    DEFAULTS,
    read_options,
    read_wait,
    unknown_priority,
)
from headgate.overload.gate_state import OUTCOMES, GateState
from headgate.overload.place import Place, Request
from headgate.policy.model import PRIORITIES
from headgate.runtime.drivers import adrive, drive
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Mapping
    from typing import Self, Unpack

    from headgate.clock import Clock
    from headgate.engine.plan import Priority
    from headgate.overload.gate_options import GateOptions, GateSettings
    from headgate.runtime.effects import Effects
    from headgate.units import Seconds

Standing = tuple[int, int | None, int, int | None]
"""Requests that wait, nanoseconds that one more would wait, requests that are in, and slots."""


class EnterOptions(TypedDict, total=False):
    """The options of a request: its *weight*, its class, and the seconds that it may wait."""

    weight: int | None
    priority: Priority
    timeout: Seconds | None


class _Gate:
    """A gate, but for the driver. Its options are `GateOptions`; *clock* is like
    `time.monotonic_ns`; gates of one *name* add up in the metrics."""

    def __init__(
        self, *, clock: Clock | None = None, name: str = "gate", **options: Unpack[GateOptions]
    ) -> None:
        self.name = name
        self._clock = clock
        self._now: Clock = time.monotonic_ns if clock is None else clock
        text = "Requests to gates by outcome."
        self._counters = {
            one: METRICS.counter("gate_requests", text, gate=name, outcome=one) for one in OUTCOMES
        }
        self._options = _changed(DEFAULTS, options)
        self._settings = self._read_options(self._options)
        self.after_fork()
        METRICS.gauge("gate_waiting", "Requests that wait at a gate.", self._read_depth, gate=name)
        METRICS.gauge("gate_in_flight", "Requests that are in.", self._read_in_flight, gate=name)
        METRICS.gauge("gate_slots", "Requests that may be in.", self._read_slots, gate=name)
        text = "Estimated seconds until all waiting requests of a gate have entered."
        METRICS.gauge("gate_wait_seconds", text, self._read_wait, gate=name)
        watch_forks(self)

    @property
    def depth(self) -> int:
        """Requests that wait."""
        return self._state.depth

    @property
    def in_flight(self) -> int:
        """Requests that are in."""
        return self._state.in_flight

    @property
    def limit(self) -> int | None:
        """Requests that may be in at the same time; None at a rate."""
        return self._state.limit

    @property
    def expected_wait(self) -> float | None:
        """Seconds that a request of a tenant with nothing waiting would wait.

        Known at a rate. With slots it is estimated from how long they were held of late: None if
        all are taken and none has been released yet.
        """
        wait_ns = self.standing("")[1]
        return None if wait_ns is None else seconds_at_least(wait_ns)

    def standing(
        self, tenant: str, weight: int | None = None, priority: Priority = "default"
    ) -> Standing:
        """Return `depth`, the wait of one more in nanoseconds, `in_flight` and `limit` at once."""
        return self._state.standing(Request(tenant, 1, weight, priority))

    def depth_of(self, tenant: str) -> int:
        """Return how many requests of *tenant* wait."""
        return self._state.depth_of(tenant)

    def configure(self, **options: Unpack[GateOptions]) -> None:
        """Change *options*; those that are None stay as they are.

        No request has to leave that waits or is in. Waits that have begun last as long as they
        were to. *slots* replace a rate, and a *rate* slots.
        """
        changed = _changed(self._options, options)
        settings = self._read_options(changed)
        self._options, self._settings = changed, settings
        self._state.configure(settings)

    def after_fork(self) -> None:
        """Begin with no request in and none waiting."""
        self._state = GateState(self._settings, self._counters, self._now, self._clock)

    def _enter(self, tenant: str, cost: int, options: EnterOptions) -> Place | Effects[Place]:
        """Return a place that can be had at once, or else the wait for one."""
        request = _read(tenant, cost, options) if options else None
        priority = "default" if request is None else request.priority
        place = self._state.try_enter(tenant, cost, priority)
        return self._state.enter(request or Request(tenant, cost)) if place is None else place

    def _read_options(self, options: dict[str, Any]) -> GateSettings:
        return read_options(options)

    def _read_depth(self) -> int:
        return self._state.depth

    def _read_in_flight(self) -> int:
        return self._state.in_flight

    def _read_slots(self) -> int:
        return self._state.limit or 0

    def _read_wait(self) -> float:
        return self._state.drain_ns() / SECOND

    def __repr__(self) -> str:
        of = "a rate" if self.limit is None else f"{self.limit} slots"
        return f"<{type(self).__name__} {self.name!r} of {of}: {self.depth} wait>"


class FairGate(_Gate):
    """The blocking form of `AsyncFairGate`: `with gate.place(tenant) as place:`, then `if place:`.

    Safe to share among threads.
    """

    def try_enter(
        self, tenant: str, cost: int = 1, *, priority: Priority = "default"
    ) -> Place | None:
        """Return a place, if it can be had without waiting; else None."""
        return self._state.try_enter(tenant, cost, priority)

    def enter(self, tenant: str, cost: int = 1, **options: Unpack[EnterOptions]) -> Place:
        """Wait for a place of *tenant*; check that it is true, and release it.

        Denied at once if it could not be had within the *timeout* or the gate's `max_wait`, or if
        too many wait.
        """
        entered = self._enter(tenant, cost, options)
        return entered if isinstance(entered, Place) else drive(entered)

    def place(self, tenant: str, cost: int = 1, **options: Unpack[EnterOptions]) -> Place:
        """`enter`, for `with gate.place(tenant) as place:`, which releases it at the end.

        A block that raises a `TimeoutError` did not succeed, in the sense of `Place.release`.
        """
        return self.enter(tenant, cost, **options)

    def close(self) -> None:
        """Deny all requests that wait, and all that come."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read_options(self, options: dict[str, Any]) -> GateSettings:
        settings = super()._read_options(options)
        if settings.fetched is not None:
            raise OptionError(f"{settings.fetched!r} is for an AsyncFairGate: it has to be awaited")
        return settings


class AsyncFairGate(_Gate):
    """Let in as many requests as there is room for; the others wait in an order fair by weight.

        gate = AsyncFairGate(slots=50, weights={"acme": 4}, max_wait=2)
        async with gate.place("acme") as place:
            if place:
                ...

    It belongs to one event loop at a time: to use it in another is a `UsageError` unless the former
    is closed, or no request is in and none waits. On a clock that can sleep, such as a
    `ManualClock`, the wait for a rate moves the clock.
    """

    _loop: AbstractEventLoop | None

    def try_enter(
        self, tenant: str, cost: int = 1, *, priority: Priority = "default"
    ) -> Place | None:
        """Return a place, if it can be had without waiting; else None."""
        if get_running_loop() is not self._loop:
            self._move_to_running_loop()
        return self._state.try_enter(tenant, cost, priority)

    async def enter(self, tenant: str, cost: int = 1, **options: Unpack[EnterOptions]) -> Place:
        """Wait for a place; as `FairGate.enter`. A cancelled caller leaves the queue."""
        if get_running_loop() is not self._loop:
            self._move_to_running_loop()
        entered = self._enter(tenant, cost, options)
        return entered if isinstance(entered, Place) else await adrive(entered)

    @asynccontextmanager
    async def place(
        self, tenant: str, cost: int = 1, **options: Unpack[EnterOptions]
    ) -> AsyncIterator[Place]:
        """`enter`, and release at the end: `async with gate.place(tenant) as place:`, `if place:`.

        A block that raises a `TimeoutError` did not succeed, in the sense of `Place.release`.
        """
        with await self.enter(tenant, cost, **options) as place:
            yield place

    async def aclose(self) -> None:
        """Deny all requests that wait, and all that come."""
        await adrive(self._state.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def after_fork(self) -> None:
        super().after_fork()
        self._loop = None

    def _move_to_running_loop(self) -> None:
        """Belong to the running loop, and begin with no request in and none waiting."""
        loop, former = get_running_loop(), self._loop
        now = self._now
        if self._clock is None:  # a loop on virtual time has a clock of its own
            now = getattr(loop, "time_ns", time.monotonic_ns)
        if former is not None and not former.is_closed() and (self.in_flight or self.depth):
            raise UsageError(
                f"the gate {self.name!r} is in use in another event loop: make one for each"
            )
        if now != self._now and former is not None:  # a rate was taken from at other times
            self._settings = self._read_options(self._options)
        self._now = now
        self.after_fork()
        self._loop = loop


def _changed(before: Mapping[str, Any], options: GateOptions) -> dict[str, Any]:
    """Return all options: *options* that are not None, and the others as they were *before*."""
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := given.keys() - DEFAULTS.keys():
        raise TypeError(f"a gate has no option {min(unknown)!r}")
    if "slots" in given and "rate" not in given:
        given = {"rate": None, "burst": 1} | given
    elif "rate" in given and "slots" not in given:
        given = {"slots": None} | given
    return {**before, **given}


def _read(tenant: str, cost: int, options: EnterOptions) -> Request:
    weight, priority = options.get("weight"), options.get("priority", "default")
    if weight is not None:
        checked_weight(weight)
    if priority not in PRIORITIES:
        raise unknown_priority(priority)
    return Request(tenant, cost, weight, priority, read_wait(options.get("timeout"), "timeout"))
