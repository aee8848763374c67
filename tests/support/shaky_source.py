"""A source that can be broken and repaired, an engine that records policies, and a watcher."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headgate.control.revision import Change, Revision, SourceError
from headgate.control.source import MemorySource
from headgate.control.watcher import PolicyWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.control.files import PolicyFiles
    from headgate.control.source import PolicySource
    from headgate.control.watcher import State
    from headgate.policy.model import Policy

SOON = 60.0
"""Seconds after which a test gives up."""


class ShakySource(MemorySource):
    """In memory, but it can be down: waits are lost then, and nothing is answered."""

    def __init__(self, first: Revision | None = None) -> None:
        super().__init__(first)
        self.is_down = False
        self.asked = 0

    def fail(self) -> None:
        self.is_down = True
        self.wake()

    def recover(self) -> None:
        self.is_down = False

    def restore(self, revision: Revision) -> None:
        """Become what a backup had; nothing is announced."""
        self._revisions = {revision.number: revision} if revision.number else {}
        self._newest = revision

    def head(self) -> Revision:
        self.asked += 1
        self._check()
        return super().head()

    def wait(self, known: Revision, timeout: float) -> None:
        self._check()
        super().wait(known, timeout)
        self._check()

    def _check(self) -> None:
        if self.is_down:
            raise SourceError("nobody answers")


class Engine:
    """Takes policies as an engine does."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []

    def __call__(self, policy: Policy) -> int:
        self.policies.append(policy)
        return policy.revision

    @property
    def limits(self) -> list[str]:
        """The first limit of each policy, as text."""
        return [str(policy.rules[0].limits[None][0]) for policy in self.policies]

    @property
    def revisions(self) -> list[int]:
        return [policy.revision for policy in self.policies]


class Watched:
    """A watcher of *source*, its engine, and all its states."""

    def __init__(self, source: Any, engine: Any = None, **options: Any) -> None:
        self.engine = Engine() if engine is None else engine
        self.states: list[State] = []
        self._news = threading.Condition()
        usual: dict[str, Any] = {"longest_wait": 0.001, "clock": lambda: 77, "jitter": lambda: 0.0}
        self.watcher = PolicyWatcher(
            source, self.engine, on_change=self._changed, **(usual | options)
        )

    @property
    def state(self) -> State:
        return self.watcher.state

    def until(self, is_so: Callable[[State], object]) -> State:
        """Wait until the state *is_so*."""
        with self._news:
            assert self._news.wait_for(lambda: is_so(self.watcher.state), SOON), self.watcher.state
            return self.watcher.state

    def _changed(self, state: State) -> None:
        with self._news:
            self.states.append(state)
            self._news.notify_all()


@contextmanager
def watching(
    source: PolicySource | PolicyFiles, engine: Any = None, **options: Any
) -> Iterator[Watched]:
    """A watcher that has started, and is stopped in the end."""
    watched = Watched(source, engine, **options)
    with watched.watcher:
        yield watched


def made(number: int, limit: str = "5/s", **rule: Any) -> Revision:
    """A revision with one rule."""
    document = {"version": 1, "rules": [{"id": "a", "key_by": "ip", "limit": limit, **rule}]}
    return Revision(number, document, {"a": number}, Change("ada", number, f"make {number}"))
