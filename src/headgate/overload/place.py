"""A request to a gate, and its result: a place or a denial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from headgate.engine.plan import Priority
    from headgate.overload.gate_state import GateState

Reason = Literal[
    "queue_full",  # as many wait as may; or one with fewer waiting took its place
    "too_long",  # it would have to wait longer than it may
    "timeout",  # it has waited as long as it may
    "shed",  # there was no room at once, and its class does not wait
    "closed",  # the gate was closed
]
"""The reason of a denial."""


class Request(NamedTuple):
    """A request to a gate."""

    tenant: str
    cost: int = 1
    weight: int | None = None
    priority: Priority = "default"
    patience_ns: int | None = None


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """The result of a request to a gate: true when the request may go on.

    It is in until `release`, which `with place:` does. It is released once; a further attempt does
    nothing. A place of an `AsyncFairGate` belongs to its event loop.
    """

    _state: GateState | None
    tenant: str
    began_ns: int
    in_flight: int
    """Requests that were in when it began, itself included."""
    scaled: int
    """The same, scaled up for the `Steering` if some slots are reserved for other classes."""
    waited_ns: int = 0
    taken: int = 0
    """Units that it took of a budget."""
    reason: Reason | None = None
    """The reason of a denial, or None."""
    retry_after_ns: int | None = None
    is_timed: bool = True
    """True if its duration says how the backend performs. Set it to false for what is open as long
    as its client likes, such as a websocket: it moves no slots."""

    def __bool__(self) -> bool:
        return self.reason is None

    def __repr__(self) -> str:
        state = self.reason or ("released" if self._state is None else "in")
        return f"<Place of {self.tenant!r}: {state}>"

    @property
    def allowed(self) -> bool:
        """True if the request may go on."""
        return self.reason is None

    @property
    def is_in(self) -> bool:
        """True until it is released."""
        return self._state is not None

    @property
    def waited(self) -> float:
        """Seconds that it waited, in vain or not."""
        return self.waited_ns / SECOND

    @property
    def retry_after(self) -> float | None:
        """Of a denial: seconds until there may be room, by those who wait now; None if unknown."""
        return None if self.retry_after_ns is None else seconds_at_least(self.retry_after_ns)

    def release(self, *, succeeded: bool = True) -> bool:
        """Let the next one in; False if there is nothing to release.

        It did not *succeed* if it failed for lack of capacity, as for `Steering.observe`.
        """
        state, self._state = self._state, None
        if state is None:
            return False
        state.release(self, succeeded=succeeded)
        return True

    def cancel(self) -> bool:
        """Release a place that was not used: it counts for nothing.

        It moves no slots, and units of a rate go to the next, if none has begun since.
        """
        state, self._state = self._state, None
        if state is None:
            return False
        state.take_back(self)
        return True

    def abandon(self) -> None:
        """Leave the release to the next request that comes.

        For finalizers, which may run at any time and in any thread: it takes no lock.
        """
        if self._state is not None:
            self._state.abandoned.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release(succeeded=not isinstance(error, TimeoutError))
