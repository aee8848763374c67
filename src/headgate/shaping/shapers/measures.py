"""What operators see of shapers: how many were delayed, and how many wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from headgate.observability import MEASURES
from headgate.stores.forking import watch_forks

if TYPE_CHECKING:
    from headgate.decisions import Decision

_TEXT: Final = "Requests to shapers: gone at once, told to wait, or refused."
_AT_ONCE: Final = MEASURES.counter("shaped", _TEXT, outcome="at_once")
_DELAYED: Final = MEASURES.counter("shaped", _TEXT, outcome="delayed")
_REFUSED: Final = MEASURES.counter("shaped", _TEXT, outcome="refused")
_GIVEN_UP: Final = MEASURES.counter("shaped_given_up", "Turns that were given up before they came.")


class Waiting:
    """How many wait in this process: callers of shapers, and requests under a rule with `shape`."""

    def __init__(self) -> None:
        self.begin_anew()
        MEASURES.gauge("shaper_waiting", "Callers that wait for their turn.", self.now)
        watch_forks(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def now(self) -> float:
        return self._count

    def __enter__(self) -> None:
        self.add(1)

    def __exit__(self, *_: object) -> None:
        self.add(-1)

    def add(self, more: int) -> None:
        with self._lock:
            self._count += more


WAITING: Final = Waiting()


def count_asked(decision: Decision) -> None:
    """Somebody asked for a turn."""
    if not decision.allowed:
        _REFUSED.add()
    elif decision.delay_ns:
        _DELAYED.add()
    else:
        _AT_ONCE.add()


def count_given_up() -> None:
    """A turn was given up."""
    _GIVEN_UP.add()
