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
    "queue_full",  # the queue is full, or a request of a tenant with fewer in it took its place
    "too_long",  # the expected wait is longer than the request may wait
    "timeout",  # the request has waited as long as it may
    "shed",  # there was no free slot, and its class does not wait
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
    """The result of a request to a gate: true if the request may go on.

    It is held until `release`, which `with place:` calls. Releasing it again does nothing. A place
    of an `AsyncFairGate` belongs to its event loop.
    """

    _state: GateState | None
    tenant: str
    began_ns: int
    in_flight: int
    """Requests in flight when it began, itself included."""
    scaled: int
    """The same, scaled up for the `Steering` if some slots are reserved for other classes."""
    waited_ns: int = 0
    taken: int = 0
    """Units that it took of a budget."""
    reason: Reason | None = None
    """The reason of a denial, or None."""
    retry_after_ns: int | None = None
    is_timed: bool = True
    """True if its duration shows how the backend performs. Set it to False for a request that lasts
    as long as its client wants, such as a websocket: then it does not adapt the slots."""

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
        """Seconds that it waited, allowed or denied."""
        return self.waited_ns / SECOND

    @property
    def retry_after(self) -> float | None:
        """Of a denial: an estimate of the seconds until a slot is free; None if unknown."""
        return None if self.retry_after_ns is None else seconds_at_least(self.retry_after_ns)

    def release(self, *, succeeded: bool = True) -> bool:
        """Release the place for the next request; False if there is nothing to release.

        *succeeded* is False if the request failed for lack of capacity, as in `Steering.observe`.
        """
        state, self._state = self._state, None
        if state is None:
            return False
        state.release(self, succeeded=succeeded)
        return True

    def cancel(self) -> bool:
        """Release a place that was not used.

        It does not adapt the slots. Units of a rate return to it if no request has begun since.
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
