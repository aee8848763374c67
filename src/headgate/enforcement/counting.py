"""Where the requests of an app are counted, by code that may block and code that may not."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from headgate.engine import AsyncRunner, Runner
from headgate.errors import OptionError
from headgate.stores.memory import MemoryStore
from headgate.stores.opening import open_store
from headgate.stores.port import AsyncStore

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.stores.port import Store, Terms

R = TypeVar("R", Runner, AsyncRunner)


class Counting:
    """The store of an app, opened when it is first used. Both kinds of code count together."""

    def __init__(self, store: str | Store | AsyncStore, clock: Clock | None) -> None:
        self._store, self._clock = store, clock
        self._opening = threading.RLock()
        self._runner: Runner | None = None
        self._async_runner: AsyncRunner | None = None
        self._terms: Terms = {}

    def adopt(self, terms: Terms) -> None:
        """From now on have the counters of a policy kept as *terms* say."""
        with self._opening:
            self._terms = terms
            for runner in (self._runner, self._async_runner):
                if runner is not None:
                    runner.adopt(terms)

    @property
    def runner(self) -> Runner:
        """What asks the store, for code that may block."""
        return self._runner or self._open_runner()

    @property
    def async_runner(self) -> AsyncRunner:
        """What asks the store, for an event loop."""
        return self._async_runner or self._open_async_runner()

    def close(self) -> None:
        """Give back what code that blocks holds open. Whoever asks again opens it again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    async def aclose(self) -> None:
        """Give back everything."""
        self.close()
        runner, self._async_runner = self._async_runner, None
        if runner is not None:
            await runner.aclose()

    def _open_runner(self) -> Runner:
        with self._opening:  # two threads must not have two stores
            if self._runner is None:
                opened = self._opened
                if isinstance(opened, AsyncStore):
                    raise OptionError(f"{opened!r} is for event loops; this part of the app blocks")
                runner = Runner(opened, clock=self._clock_for(opened))
                self._runner = self._begun(runner, self._async_runner)
            return self._runner

    def _open_async_runner(self) -> AsyncRunner:
        with self._opening:
            if self._async_runner is None:
                opened = self._opened
                runner = AsyncRunner(opened, clock=self._clock_for(opened))
                self._async_runner = self._begun(runner, self._runner)
            return self._async_runner

    def _begun(self, runner: R, other: Runner | AsyncRunner | None) -> R:
        """*runner*, which counts with the *other* one even without the store."""
        runner.adopt(self._terms)
        if other is not None:
            runner.fallback.join(other.fallback)
        return runner

    @cached_property
    def _opened(self) -> str | Store | AsyncStore:
        """The store: a memory store itself, for both to share; of another the URL."""
        if isinstance(self._store, str) and self._store.lower().startswith("memory:"):
            return open_store(self._store, self._clock)
        return self._store

    def _clock_for(self, store: object) -> Clock | None:
        return None if isinstance(store, MemoryStore) and store is not self._store else self._clock
