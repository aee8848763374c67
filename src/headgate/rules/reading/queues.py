"""Reading `shape`, and what else is said of rates, queues and waiting."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError, NotationError
from headgate.limits import LeakyQueue, parse_rate
from headgate.limits.queues import LONGEST_QUEUE
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields
from headgate.rules.reading.tree import Place, Scalar
from headgate.units import SECOND, Rate, exact_rate, plain_rate, plain_seconds

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.rules.reading.findings import Spot

SHAPE_FIELDS: Final = ("rate", "queue", "max_wait")
A_RATE: Final = "a rate such as 10/s or '100 per minute'"


def read_shape(spot: Spot) -> LeakyQueue | None:
    """The queue that a rule shapes its requests with."""
    fields = Fields.of(spot, SHAPE_FIELDS, "how requests are delayed")
    if fields is None:
        return None
    before = spot.findings.errors
    rate = fields.need("rate", read_rate, A_RATE)
    queue = fields.read("queue", read_queue, None)
    max_wait = fields.read("max_wait", read_max_wait, None)
    if rate is None or fields.meant or spot.findings.errors > before:
        return None
    try:
        return queue_of(plain_rate(rate), queue=queue, max_wait=max_wait)
    except LimitError as error:
        field = str(error).partition(" ")[0]
        fields.spot_of(field).wrong(str(error))
        return None


def queue_of(
    rate: Rate, *, queue: int | None = None, max_wait: int | float | None = None
) -> LeakyQueue:
    """What a rule says of a queue; without a *queue*, as many wait as *max_wait* allows.

    Raises `LimitError`.
    """
    if queue is not None:
        return LeakyQueue(rate, queue, max_wait)
    if max_wait is None:
        raise LimitError("how many may wait is not said; expected queue, max_wait or both")
    longest = ceil(exact_rate(rate, "rate") * round(max_wait * SECOND) / SECOND)
    if longest > LONGEST_QUEUE:
        told = f"max_wait is {max_wait} seconds: {longest} requests would wait"
        raise LimitError(f"{told}; expected a queue of at most {LONGEST_QUEUE}")
    return LeakyQueue(rate, longest, max_wait)


def read_rate(spot: Spot) -> Fraction | None:
    """Units a second, exactly, from a text in the notation without options."""
    node = spot.node
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        spot.expected(A_RATE)
        return None
    try:
        return parse_rate(node.text)
    except NotationError as error:
        at = node.place
        if node.inset is not None and at.line is not None and at.column is not None:
            at = Place(at.line, at.column + node.inset + error.position)
        told = f"not a rate, at character {error.position + 1}: {error.problem}"
        spot.wrong(told, hint=f"expected {' or '.join(error.expected)}", at=at)
        return None


def read_queue(spot: Spot) -> int | None:
    """How many may wait."""
    return scalars.whole(spot, 0, LONGEST_QUEUE)


def read_max_wait(spot: Spot) -> int | float | None:
    """How long one may wait, in seconds; 0 for not at all."""
    found = wait_ns(spot)
    return None if found is None else plain_seconds(found)


def wait_ns(spot: Spot) -> int | None:
    """The same in nanoseconds."""
    node = spot.node
    if isinstance(node, Scalar) and node.is_plain and node.text == "0":
        return 0
    return scalars.duration_ns(spot)
