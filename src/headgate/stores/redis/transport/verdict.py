"""What to do about a request that a server has answered with an error. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.stores.redis import faults
from headgate.stores.redis.transport.slots import Redirection, redirection

if TYPE_CHECKING:
    from headgate.server_urls import Address

MOST_DETOURS: Final = 5
"""How often a request is sent again, other than after TRYAGAIN."""

_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1


class Remedy(Enum):
    """Ways to go on at the same server, which has not carried the request out."""

    SEND_WHOLE = 1  # with the script's text
    WAIT = 2  # the slot is on the move: in parts, or a little later


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request fails with *error*. If *is_stale*, find out anew where the server is."""

    error: StoreError
    is_stale: bool


Verdict = Remedy | Redirection | Refusal


def judge(text: str, where: str, detours: int, *, node: Address | None = None) -> Verdict:
    """What to do after the error reply *text* of the server that is called *where*.

    *detours* is how often the request has been sent again. *node* is the server's address if it is
    part of a cluster that we know of; without it MOVED and the like are errors.
    """
    code = text.partition(" ")[0]
    if detours < MOST_DETOURS:
        if code == "NOSCRIPT":
            return Remedy.SEND_WHOLE
        if node is not None:
            if code == "TRYAGAIN":
                return Remedy.WAIT
            if code in ("MOVED", "ASK") and (other := redirection(text, node)):
                return other
    if node is not None and code in ("MOVED", "ASK"):
        lost = f"{where}: nodes of the cluster sent a request on {detours} times: {text}"
        return Refusal(StoreError(lost, reason="cluster_down"), is_stale=True)
    error = faults.store_error(text, where)
    return Refusal(error, is_stale=error.reason in ("readonly", "cluster_down"))


def pause(timeout: float, left: float) -> float:
    """Seconds to wait after TRYAGAIN: the longer it has been going on, the longer."""
    return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (timeout - left) / 4))
