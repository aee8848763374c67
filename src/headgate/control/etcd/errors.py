"""What can go wrong with etcd, told apart.

gRPC says a code, and etcd a sentence that is part of its API: the same code stands for faults that
pass and for faults that do not. What nobody here has heard of is still an `EtcdError`.
"""

from __future__ import annotations

from typing import Final, Literal

import grpc

from headgate.control.revision import StorageError

Kind = Literal[
    "unreachable",  # no connection, or it broke
    "timeout",  # no answer within the deadline
    "no_leader",  # the members have no leader, or are about to have another
    "busy",  # etcd has too much to do
    "token",  # the login is no longer good; another one may be
    "login",  # a wrong user or password
    "denied",  # a user who may not do this
    "too_large",  # more than etcd takes in one request
    "full",  # etcd's database has no room
    "compacted",  # what was asked for is no longer there
    "refused",  # any other error that etcd answered with
    "closed",  # closed by its owner
]
PASSING: Final = frozenset({"unreachable", "timeout", "no_leader", "busy", "token", "compacted"})
"""Faults after which another member, or the same one a little later, may well answer."""

_DOUBTFUL: Final = frozenset({"unreachable", "timeout", "no_leader", "busy", "refused", "closed"})

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
_CODES: Final[dict[grpc.StatusCode, Kind]] = {
    grpc.StatusCode.UNAVAILABLE: "unreachable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
    grpc.StatusCode.UNAUTHENTICATED: "token",
    grpc.StatusCode.PERMISSION_DENIED: "denied",
    grpc.StatusCode.OUT_OF_RANGE: "compacted",
}
_TEXTS: Final[dict[Kind, str]] = {
    "unreachable": "cannot be reached",
    "timeout": "does not answer in time",
    "no_leader": "has no leader at the moment",
    "busy": "has too much to do",
    "token": "does not accept the login any more",
    "login": "knows no such user and password",
    "denied": "does not permit this user to do that",
    "too_large": "does not take so much in one request; see its --max-request-bytes",
    "full": "has no room left; compact and defragment it, or raise --quota-backend-bytes",
    "compacted": "no longer has the revision that was asked for",
    "refused": "has refused",
    "closed": "was closed here",
}


class EtcdError(StorageError):
    """etcd could not be asked, or did not do it. *kind* is a word for why.

    `is_certain`: nothing that was asked has been done, nor will be.
    """

    def __init__(self, place: str, kind: Kind, detail: str = "") -> None:
        said = " ".join(detail.split())[:300]
        super().__init__(f"etcd at {place} {_TEXTS[kind]}" + (f": {said}" if said else ""))
        self.kind: Kind = kind
        self.is_certain = kind not in _DOUBTFUL

    @property
    def is_passing(self) -> bool:
        """Whether another member, or the same one a little later, may well answer."""
        return self.kind in PASSING


def error_of(place: str, error: grpc.aio.AioRpcError) -> EtcdError:
    """The error of ours for one of gRPC's."""
    detail = error.details() or error.code().name
    return EtcdError(place, kind_of(detail) or _CODES.get(error.code(), "refused"), detail)


def kind_of(sentence: str) -> Kind | None:
    """What a sentence of etcd's means; None if it is not known."""
    for words, kind in _SENTENCES:
        if words in sentence:
            return kind
    return None
