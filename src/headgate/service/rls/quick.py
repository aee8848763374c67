"""The answer to a call that passes, made quickly.

Most calls are such. What is the same for all of them is made beforehand; the answer is the one that
`Answering` would give, and a property test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.responses.ratelimit_draft11 import pace_of, phrases_of, quoted
from headgate.service.rls import wire
from headgate.service.rls.answering import limit_field
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.limits import Limit
    from headgate.responses import ResponseOptions
    from headgate.service.rls.asked import Part

Left = tuple[int, int]
"""What is left of a limit, and the nanoseconds until all of it is back."""

Admitted = Callable[[int, int], bytes]
"""From what is left of the one limit of a call that passed, as in `Left`, to the answer."""

AdmittedByAll = Callable[[Sequence[Left]], bytes]
"""The same for several limits, in the order of the parts and their checks."""

_LESS_THAN_A_SECOND: Final = SECOND - 1
_PASSES: Final = wire.overall(passes=True)


def is_plain(answers: ResponseOptions) -> bool:
    """Whether the two usual families of headers are to be sent, and no others."""
    return answers.x_ratelimit and answers.ratelimit and not (answers.draft03 or answers.bucket)


def quick_answer(part: Part, clock: Clock, *, with_headers: bool) -> Admitted:
    """What answers a call that has only the one limit of *part* to pass, and did.

    With headers, they are those of the two usual families.
    """
    ((_, said),) = _said_of([part])
    field, total, name = said.field, said.total, said.name
    quota, pace = said.quota, said.pace
    stated = wire.header("ratelimit-policy", said.policy)
    second, reset = 0, b""

    def answer(remaining: int, reset_ns: int) -> bytes:
        nonlocal second, reset
        status = _status(field, remaining, (reset_ns + _LESS_THAN_A_SECOND) // SECOND)
        if not with_headers:
            return status
        reset_at = (clock() + reset_ns + _LESS_THAN_A_SECOND) // SECOND
        if reset_at != second:
            second, reset = reset_at, wire.header("x-ratelimit-reset", str(reset_at))
        item = _item(name, remaining, _back_s(quota, pace, remaining, reset_ns))
        return status + total + _left(remaining) + reset + stated + item

    return answer


def quick_answer_of_all(
    parts: Sequence[Part], clock: Clock, *, with_headers: bool
) -> AdmittedByAll:
    """What answers a call of one descriptor that has the limits of all *parts* to pass, and did."""
    named = _said_of(parts)
    stated = wire.header("ratelimit-policy", ", ".join([said.policy for _, said in named]))
    owners = [owner for owner, _ in named]

    def answer(left: Sequence[Left]) -> bytes:
        place = min(range(len(left)), key=lambda n: left[n][0])  # the first, of equal ones
        remaining, reset_ns = left[place]
        owner, tightest = named[place]
        whole_ns = max([left[n][1] for n, other in enumerate(owners) if other == owner])
        status = _status(tightest.field, remaining, (whole_ns + _LESS_THAN_A_SECOND) // SECOND)
        if not with_headers:
            return status
        reset_at = (clock() + reset_ns + _LESS_THAN_A_SECOND) // SECOND
        items = [
            _item_text(said.name, many, _back_s(said.quota, said.pace, many, back_ns))
            for (_, said), (many, back_ns) in zip(named, left, strict=True)
        ]
        return b"".join(
            (
                status,
                tightest.total,
                _left(remaining),
                wire.header("x-ratelimit-reset", str(reset_at)),
                stated,
                wire.header("ratelimit", ", ".join(items)),
            )
        )

    return answer


class _Said(NamedTuple):
    """What is said of a limit in every answer."""

    field: bytes
    """In the status."""
    total: bytes
    policy: str
    name: str
    quota: int
    pace: tuple[int, int] | None
    """In how many nanoseconds how many units come back; None if not one after the other."""


def _said_of(parts: Sequence[Part]) -> list[tuple[int, _Said]]:
    """What is said of the limits of all *parts*, each with the place of its part."""
    found = []
    for owner, part in enumerate(parts):
        for place, check in enumerate(part.checks, 1):
            title = part.title if place == 1 else f"{part.title}/{place}"
            found.append((owner, _said(part.name, title, check.limit)))
    return found


def _said(name: str, title: str, limit: Limit) -> _Said:
    return _Said(
        limit_field(name, limit),
        wire.header("x-ratelimit-limit", str(limit.quota)),
        phrases_of(title, limit).policy,
        quoted(title),
        limit.quota,
        pace_of(limit),
    )


def _back_s(quota: int, pace: tuple[int, int] | None, remaining: int, reset_ns: int) -> int:
    """Seconds until one more is back, as `Phrases.returns_in_ns` has it; 0 if nothing is out."""
    if not reset_ns:
        return 0
    if pace is not None and (others := quota - remaining - 1) > 0:
        reset_ns -= others * pace[0] // pace[1]
    return (reset_ns + _LESS_THAN_A_SECOND) // SECOND if reset_ns > 0 else 1


@lru_cache(maxsize=4096)
def _status(field: bytes, remaining: int, seconds: int) -> bytes:
    """The code of the whole answer, and the one status of it."""
    return _PASSES + wire.status(field, remaining, seconds, passes=True)


@lru_cache(maxsize=4096)
def _left(remaining: int) -> bytes:
    return wire.header("x-ratelimit-remaining", str(remaining))


@lru_cache(maxsize=4096)
def _item(name: str, remaining: int, back_s: int) -> bytes:
    return wire.header("ratelimit", _item_text(name, remaining, back_s))


def _item_text(name: str, remaining: int, back_s: int) -> str:
    return f"{name};r={remaining};t={back_s}" if back_s else f"{name};r={remaining}"
