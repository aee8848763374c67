"""Traffic on virtual time: requests and their times.

Many requests are the same but for their time. A source makes one `SimulatedRequest` for all of
them, so a replay can keep what it knows of such a request by that object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.request import Request
from headgate.llm.attributes import attributes_of
from headgate.llm.protocol import protocol_of
from headgate.llm.request import BYTES_PER_TOKEN, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Headers = tuple[tuple[str, str], ...]

_BATCH: Final = 4096
_MAX_KNOWN: Final = 100_000
_HOST: Final = "host"


class ModelUse(NamedTuple):
    """A call of a language model, in tokens: of its prompt, of its output if known, and the most
    that it may generate, if it says so."""

    model: str | None
    prompt_tokens: int
    output_tokens: int | None = None
    max_tokens: int | None = None


class Arrival(NamedTuple):
    """A request that arrives at *at_ns*, in nanoseconds since the epoch.

    *cost* overrides that of the rules. *took_ns* is the time that it was served for, if known:
    concurrency limits depend on it. *call* is what it asks of a language model, if anything.
    """

    at_ns: int
    method: str = "GET"
    path: str = "/"
    headers: Headers = ()
    ip: str = ""
    cost: int | None = None
    took_ns: int | None = None
    call: ModelUse | None = None


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """A request without its time. Equal only to itself."""

    method: str = "GET"
    path: str = "/"
    headers: Headers = ()
    ip: str = ""
    cost: int | None = None
    call: ModelUse | None = None

    def request(self) -> Request:
        """Return the request as rules see it."""
        host = next((value for name, value in self.headers if name.lower() == _HOST), "")
        request = Request(self.method, self.path, host, self.headers, self.ip)
        if self.call is None:
            return request
        model, prompt_tokens, _, max_tokens = self.call
        size = prompt_tokens * BYTES_PER_TOKEN
        asked = ModelRequest(protocol_of(self.path), size, model=model, output_tokens=max_tokens)
        return replace(request, attributes=attributes_of(asked))


Event = tuple[int, SimulatedRequest, "int | None"]
"""The time of a request, the request, and the time that it is served for, if known."""


class Traffic(ABC):
    """A source of requests, read once."""

    retries_denied: bool = False
    """True if `deny` reports each denial before the next batch is read; batches are short then."""
    retries: int = 0
    """The number of requests that repeat denied ones."""
    skipped: int = 0
    """The number of invalid lines."""
    late: int = 0
    """The number of requests that came too late to be put in order."""

    @abstractmethod
    def batches(self) -> Iterator[list[Event]]:
        """Yield all requests in the order of time, in batches that are not empty."""

    @property
    def share(self) -> float | None:
        """The share that was read, from 0 to 1; None if unknown."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the source, for people."""
        return ()

    def deny(self, event: Event, retry_after_ns: int | None) -> None:
        """Report that *event* was denied, and when it would be allowed: None is never."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Arrival]:
        for batch in self.batches():
            for at_ns, one, took_ns in batch:
                fields = one.method, one.path, one.headers, one.ip, one.cost
                yield Arrival(at_ns, *fields, took_ns, one.call)


class Given(Traffic):
    """Requests that the caller has, in the order of time."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._arrivals = arrivals

    def batches(self) -> Iterator[list[Event]]:
        known: dict[tuple[object, ...], SimulatedRequest] = {}
        left = iter(self._arrivals)
        while some := list(islice(left, _BATCH)):
            batch: list[Event] = []
            for one in some:
                fields = *one[1:6], one.call
                request = known.get(fields)
                if request is None:
                    if len(known) >= _MAX_KNOWN:
                        known.clear()
                    request = known[fields] = SimulatedRequest(*fields)
                batch.append((one.at_ns, request, one.took_ns))
            yield batch
