"""Telling a store that has come back what was admitted without it. No I/O.

What still counts here is taken there, as much of it as is left and no more: nobody starts with a
debt because of an outage. A few counters at a time, with pauses that differ from process to
process, so that a fleet does not trip the store it has just got back. What the store was asked is
owed no longer, whether or not an answer came; only what it surely did not do is owed still.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.limits import Concurrency, ConstantLimit
from headgate.runtime.outage import count_merged
from headgate.stores.operations import Check, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from headgate.limits import Limit
    from headgate.stores.base import Store


BATCH: Final = 50
"""Counters that are reported at once."""

LONGEST_START: Final = 1.0
"""Seconds until the first batch, at most: each process draws its own time."""

PAUSE: Final = 0.05
"""Seconds between two batches; half to twice as many."""

Steps = Generator[float | TakeEach, Any, None]
"""Yields seconds to wait, and operations to be run; is sent the reply of those, or a `StoreError`
in its place. It ends when all is told, or when the store fails."""


def merging(owing: Owing, used: Callable[[str, str], int], random: Random) -> Steps:
    """Report *owing* to the store, as far as *used* says that it is still in use here."""
    yield random.uniform(0, LONGEST_START)
    while owed := owing.take_some(BATCH):
        counting = [(check, min(check.cost, used(check.group, check.key))) for check in owed]
        asked = [_costing(check, amount) for check, amount in counting if amount]
        if asked:
            reply = yield _taking(asked)
            if isinstance(reply, StoreError):
                owing.add(asked if reply.is_undone else ())
                return
            owing.add([one for one, said in zip(asked, reply, strict=True) if _is_undone(said)])
            rest = _what_is_left(asked, reply)
            if rest and isinstance((yield _taking(rest)), StoreError):
                return
        yield random.uniform(PAUSE / 2, PAUSE * 2)


def _is_undone(said: object) -> bool:
    return isinstance(said, StoreError) and said.is_undone


def _what_is_left(asked: Sequence[Check], reply: Sequence[Any]) -> list[Check]:
    """The rest that denied checks of *asked* can still be charged."""
    rest = []
    for check, outcomes in zip(asked, reply, strict=True):
        if isinstance(outcomes, StoreError) or outcomes[0].allowed:
            continue
        if left := outcomes[0].remaining:
            rest.append(_costing(check, left))
    return rest


def _taking(checks: Sequence[Check]) -> TakeEach:
    return TakeEach(tuple([Take((check,)) for check in checks]))


def _costing(check: Check, amount: int) -> Check:
    return Check(check.group, check.key, check.limit, amount)


MOST_OWED: Final = 10_000
"""Counters whose usage is kept; that of further ones is not reported."""


class Owing:
    """Unreported usage by counter, of at most *most* counters. Safe to share among threads.

    Slots are not usage: they are not reported.
    """

    __slots__ = ("_lock", "_most", "_owed")

    def __init__(self, most: int = MOST_OWED) -> None:
        self._most = most
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the usage, which the parent process reports."""
        self._lock = threading.Lock()
        self._owed: dict[tuple[str, str], tuple[Limit, int]] = {}

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, checks: Iterable[Check]) -> int:
        """Add the costs of *checks*; the number of those for which there was no room."""
        dropped = 0
        with self._lock:
            for check in checks:
                if not check.cost or isinstance(check.limit, Concurrency | ConstantLimit):
                    continue
                place = check.group, check.key
                known = self._owed.get(place)
                if known is None and len(self._owed) >= self._most:
                    dropped += 1
                    continue
                self._owed[place] = check.limit, check.cost + (0 if known is None else known[1])
        return dropped

    def subtract(self, checks: Iterable[Check]) -> None:
        """Subtract the costs of *checks*, which were refunded here."""
        with self._lock:
            for check in checks:
                place = check.group, check.key
                limit, amount = self._owed.get(place, (check.limit, 0))
                if amount > check.cost:
                    self._owed[place] = limit, amount - check.cost
                else:
                    self._owed.pop(place, None)

    def forget(self, checks: Iterable[Check]) -> None:
        """Forget the counters of *checks*, which were reset."""
        with self._lock:
            for check in checks:
                self._owed.pop((check.group, check.key), None)

    def take_some(self, most: int) -> list[Check]:
        """Remove and return the usage of up to *most* counters."""
        with self._lock:
            places = list(islice(self._owed, most))
            taken = [(place, *self._owed.pop(place)) for place in places]
        return [Check(group, key, limit, amount) for (group, key), limit, amount in taken]


class Merger:
    """Reports usage to *store* in the background, one reconciliation at a time.

    It does not keep the store alive.
    """

    def __init__(self, store: Store) -> None:
        self._store: weakref.ref[Store] = weakref.ref(store)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """True if a reconciliation is in progress."""
        if self._thread is not None and self._thread.is_alive():
            return True
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    def start(self, new_steps: Callable[[], Steps]) -> None:
        """Begin with *new_steps* unless one is in progress: in a task of the running event loop, or
        in a thread if there is no loop."""
        with self._lock:
            if self.is_busy:
                return
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._stopped = threading.Event()
                self._thread = threading.Thread(
                    target=_merge,
                    args=(self._store, new_steps(), self._stopped),
                    name="headgate-merge",
                    daemon=True,
                )
                self._thread.start()
                return
            self._task = loop.create_task(_merge_in_loop(self._store, new_steps()))

    def stop(self) -> None:
        """End the reconciliation that is in progress, if any."""
        self._stopped.set()
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)


def _merge(ref: weakref.ref[Any], steps: Steps, stopped: threading.Event) -> None:
    reply: object = None
    while not stopped.is_set():
        try:
            step = steps.send(reply)
        except StopIteration:
            return
        reply = None
        if not isinstance(step, TakeEach):
            stopped.wait(step)
            continue
        store = ref()
        if store is None:
            return
        try:
            reply = store.run(step)
        except StoreError as error:
            reply = error
        else:
            _count(step, reply)
        del store


async def _merge_in_loop(ref: weakref.ref[Any], steps: Steps) -> None:
    reply: object = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration:
            return
        reply = None
        if not isinstance(step, TakeEach):
            await asyncio.sleep(step)
            continue
        store = ref()
        if store is None:
            return
        try:
            reply = await store.arun(step)
        except StoreError as error:
            reply = error
        else:
            _count(step, reply)
        del store


def _count(step: TakeEach, reply: Any) -> None:
    pairs = zip(step.takes, reply, strict=True)
    units = [
        take.checks[0].cost
        for take, said in pairs
        if not isinstance(said, StoreError) and said[0].allowed
    ]
    if units:
        count_merged(sum(units))
