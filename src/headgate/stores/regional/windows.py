"""For how long what was consumed under a limit has a meaning elsewhere.

What was used longer ago than a limit takes to be as new says nothing any more. So a node counts in
windows of that length, and tells of a window until the next one has passed too. Lengths are whole
seconds of three binary digits, at most a quarter longer than need be: limits that are about alike
share a message. The windows of a node are numbered by its own clock, and compared with its own
alone: whose clock is right does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.limits import Limit

SLACK_NS: Final = 30 * SECOND
"""How long after its end a window may still be heard of: messages that were under way for long."""


def window_length_ns(limit: Limit) -> int:
    """How long the windows are in which consumption under *limit* is counted."""
    seconds = -(-limit.period_ns // SECOND)
    shift = max(seconds.bit_length() - 3, 0)
    return (-(-seconds >> shift) << shift) * SECOND


def is_over(window: int, length_ns: int, now_ns: int) -> bool:
    """Whether nobody has to be told any more what was used in *window*."""
    return now_ns // length_ns > window + 1


def remembered_ns(length_ns: int) -> int:
    """For how long a store has to remember what it was told of a window."""
    return 2 * length_ns + SLACK_NS
