"""Errors of etcd, classified.

etcd answers with a gRPC code and a sentence that is part of its API: the same code stands for
transient and for lasting faults. An unknown fault is still an `EtcdError`.
"""

from __future__ import annotations

from typing import Final, Literal

from headgate.control.revision import SourceError

Kind = Literal[
    "unreachable",  # no connection, or it broke
    "timeout",  # no answer within the deadline
    "no_leader",  # the members have no leader, or are electing one
    "busy",  # overloaded
    "token",  # the login has expired; another one may succeed
    "login",  # a wrong user or password
    "denied",  # the user has no permission
    "too_large",  # more than etcd accepts in one request
    "full",  # etcd's database has no room
    "compacted",  # the revision asked for is no longer there
    "rejected",  # any other error that etcd answered with
    "closed",  # closed by its owner
]
PASSING: Final = frozenset({"unreachable", "timeout", "no_leader", "busy", "token", "compacted"})
"""Faults after which another member, or the same one a little later, may well answer."""

_DOUBTFUL: Final = frozenset({"unreachable", "timeout", "no_leader", "busy", "rejected", "closed"})

_SENTENCES: Final[tuple[tuple[str, Kind], ...]] = (
    ("no leader", "no_leader"),
    ("not leader", "no_leader"),
    ("leader changed", "no_leader"),
    ("request timed out", "no_leader"),
    ("unhealthy cluster", "no_leader"),
    ("server stopped", "unreachable"),
    ("not supported for learner", "unreachable"),
    ("too many requests", "busy"),
    ("invalid auth token", "token"),
    ("auth store is old", "token"),
    ("user name is empty", "token"),
    ("authentication failed", "login"),
    ("permission denied", "denied"),
    ("request is too large", "too_large"),
    ("database space exceeded", "full"),
    ("has been compacted", "compacted"),
)
_CODES: Final[dict[int, Kind]] = {
    4: "timeout",
    7: "denied",
    11: "compacted",
    14: "unreachable",
    16: "token",
}
"""By gRPC's numbers."""
_TEXTS: Final[dict[Kind, str]] = {
    "unreachable": "cannot be reached",
    "timeout": "does not answer in time",
    "no_leader": "has no leader at the moment",
    "busy": "is overloaded",
    "token": "no longer accepts the login",
    "login": "does not know this user and password",
    "denied": "does not permit this user to do that",
    "too_large": "does not accept so large a request; see its --max-request-bytes",
    "full": "has no room left; compact and defragment it, or raise --quota-backend-bytes",
    "compacted": "no longer has the revision that was asked for",
    "rejected": "answered with an error",
    "closed": "is no longer used: this source is closed",
}


class EtcdError(SourceError):
    """A request to etcd failed. *kind* classifies the reason.

    `is_certain`: the request has not been executed, nor will be.
    """

    def __init__(self, place: str, kind: Kind, detail: str = "") -> None:
        detail = " ".join(detail.split())[:300]
        super().__init__(f"etcd at {place} {_TEXTS[kind]}" + (f": {detail}" if detail else ""))
        self.kind: Kind = kind
        self.is_certain = kind not in _DOUBTFUL

    @property
    def is_passing(self) -> bool:
        """True if another member, or the same one a little later, may well answer."""
        return self.kind in PASSING


def error_of(place: str, code: int, message: str) -> EtcdError:
    """Translate an error answer with gRPC's *code*."""
    message = message or f"gRPC code {code}"
    return EtcdError(place, kind_of(message) or _CODES.get(code, "rejected"), message)


def kind_of(sentence: str) -> Kind | None:
    """Classify a sentence of etcd's; None if it is not known."""
    return next((kind for words, kind in _SENTENCES if words in sentence), None)
