"""Merging in the background: a thread for stores that block, a task for those of event loops."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError
from headgate.fallback.telling import count_merged
from headgate.stores.operations import TakeEach
from headgate.stores.port import AsyncStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.fallback.merging import Steps


class Merger:
    """Runs the steps of a merge on *store*, one merge at a time.

    It keeps no store alive: if nobody has it any more, nobody is told.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store: weakref.ref[Store | AsyncStore] = weakref.ref(store)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a merge is under way."""
        if self._thread is not None and self._thread.is_alive():
            return True
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    def start(self, new_steps: Callable[[], Steps]) -> None:
        """Begin with *new_steps* unless a merge is under way. Of an async store only where a loop
        runs; otherwise nothing is done, and it may be tried again."""
        with self._lock:
            if self.is_busy:
                return
            if isinstance(self._store(), Store):
                self._stopped = threading.Event()
                self._thread = threading.Thread(
                    target=_merge,
                    args=(self._store, new_steps(), self._stopped),
                    name="headgate-merge",
                    daemon=True,
                )
                self._thread.start()
                return
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._task = loop.create_task(_merge_in_loop(self._store, new_steps()))

    def stop(self) -> None:
        """End the merge that is under way, if any."""
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
            reply = await store.run(step)
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
