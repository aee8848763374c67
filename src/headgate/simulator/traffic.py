"""Traffic on virtual time: what is asked, by whom and when.

Many requests ask for the same. So what is asked is a value of its own, `Asked`, which a source
makes once for all requests that look alike: whoever follows the traffic may remember by it what it
makes of such a request, without looking at it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Headers = tuple[tuple[str, str], ...]

_BATCH: Final = 4096
_MOST_KNOWN: Final = 100_000
_HOST: Final = "host"


class Arrival(NamedTuple):
    """A request that arrives at *at_ns*, in nanoseconds since the epoch.

    *cost* takes the place of what the rules say. *took_ns* is how long it was served for, if that
    is known: it matters to limits on how many are served at the same time.
    """

    at_ns: int
    method: str = "GET"
    path: str = "/"
    headers: Headers = ()
    ip: str = ""
    cost: int | None = None
    took_ns: int | None = None


class Asked:
    """What a request asks; two are the same only if they are one object."""

    __slots__ = ("cost", "headers", "ip", "method", "path")

    def __init__(
        self,
        method: str = "GET",
        path: str = "/",
        headers: Headers = (),
        ip: str = "",
        cost: int | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.ip = ip
        self.cost = cost

    def __repr__(self) -> str:
        return f"Asked({self.method} {self.path} from {self.ip or 'nowhere'})"

    def request(self) -> Request:
        """The same, as rules see it."""
        host = next((value for name, value in self.headers if name.lower() == _HOST), "")
        return Request(self.method, self.path, host, self.headers, self.ip)


Event = tuple[int, Asked, "int | None"]
"""When something is asked, what, and how long it is served for, if that is known."""


class Traffic(ABC):
    """Where requests come from. To be gone through once.

    A source that *hears* is told of every refusal before its next batch is asked for, so its
    batches are short.
    """

    hears: bool = False
    retries: int = 0
    """How many requests were made because others had been refused."""
    skipped: int = 0
    """How much of the source was not understood."""
    late: int = 0
    """How many requests came so much too late that their place in the order was lost."""

    @abstractmethod
    def batches(self) -> Iterator[list[Event]]:
        """All requests in the order of their time, some at a time, none of it empty."""

    @property
    def share(self) -> float | None:
        """How much of it has gone by, from 0 to 1; None if nobody knows."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to know about the source, for people."""
        return ()

    def refused(self, event: Event, retry_after_ns: int | None) -> None:
        """That *event* was refused, and when it would be allowed: None is never."""
        raise NotImplementedError  # nobody tells a source that does not hear

    def __iter__(self) -> Iterator[Arrival]:
        for batch in self.batches():
            for at_ns, one, took_ns in batch:
                yield Arrival(at_ns, one.method, one.path, one.headers, one.ip, one.cost, took_ns)


class Given(Traffic):
    """Requests that somebody has at hand, in the order of their time."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._arrivals = arrivals

    def batches(self) -> Iterator[list[Event]]:
        known: dict[tuple[object, ...], Asked] = {}
        left = iter(self._arrivals)
        while some := list(islice(left, _BATCH)):
            batch: list[Event] = []
            for one in some:
                alike = one[1:6]
                asked = known.get(alike)
                if asked is None:
                    if len(known) >= _MOST_KNOWN:
                        known.clear()
                    asked = known[alike] = Asked(*alike)
                batch.append((one.at_ns, asked, one.took_ns))
            yield batch
