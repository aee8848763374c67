"""The `StoreError` for each error reply of a server, and for errors of sockets and the parser."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

import hiredis

from headgate.errors import StoreError, StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.stores.redis.requests import Reply, Request

DRIVER_ERRORS: Final = (hiredis.HiredisError, OSError, EOFError, ValueError)
"""All that connecting, sending and reading may raise; `fault` makes a `StoreError` of it.

`OSError` includes `TimeoutError` and `ssl.SSLError`.
"""

_CODES: Final[Mapping[str, tuple[StoreFault, str]]] = {
    "READONLY": ("readonly", "is a replica and takes no writes"),
    "MASTERDOWN": ("readonly", "is a replica that has lost its primary"),
    "LOADING": ("loading", "has just started and is reading its data"),
    "BUSY": ("busy", "is running a script that does not end"),
    "OOM": ("out_of_memory", "has no memory left: raise maxmemory, or let it evict keys"),
    "NOAUTH": ("denied", "needs a password, and the store URL has none"),
    "WRONGPASS": ("denied", "does not accept the user name and password of the store URL"),
    "NOPERM": ("denied", "does not allow the user of the store URL to do this"),
    "CLUSTERDOWN": ("cluster_down", "is part of a cluster that is down"),
    "TRYAGAIN": ("cluster_down", "is moving the slot, and its keys are still apart"),
    "MISCONF": ("refused", "takes no writes because it cannot save its data to disk"),
    "NOREPLICAS": ("refused", "takes no writes because too few replicas follow it"),
    "MOVED": ("refused", "is part of a cluster: use redis+cluster:// in the store URL"),
    "ASK": ("refused", "is part of a cluster: use redis+cluster:// in the store URL"),
    "CROSSSLOT": ("refused", "received keys of different slots in one request"),
}
_AUTH_TROUBLE: Final = ("ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH")
_ACL_TROUBLE: Final = re.compile("The user executing the script can't|ACL failure in script")
_INNER_CODE: Final = re.compile(r"Error running script.*?-([A-Z]+) ")
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*", re.DOTALL)


def store_error(text: str, where: str) -> StoreError:
    """Return the `StoreError` for the error reply *text* of the server at *where*."""
    text = _ARGUMENTS.sub("", text)  # they may contain keys
    if text.startswith(_AUTH_TROUBLE):
        return StoreError(
            f"{where} does not accept the password of the store URL: {text}", reason="denied"
        )
    inner = _INNER_CODE.search(text)  # before Redis 7 the error inside a script is wrapped
    code = inner[1] if inner else text.partition(" ")[0]
    if _ACL_TROUBLE.search(text):
        code = "NOPERM"
    reason, meaning = _CODES.get(code, ("refused", "refused"))
    return StoreError(f"{where} {meaning}: {text}", reason=reason)


def fault(error: BaseException, where: str) -> StoreError:
    """Return the `StoreError` for what a socket or a parser raised about *where*."""
    said = str(error) or type(error).__name__
    match error:
        case TimeoutError():
            return StoreError(f"{where} did not answer in time: {said}", reason="timeout")
        case ssl.SSLError():
            return StoreError(f"no TLS connection to {where}: {said}", reason="unreachable")
        case hiredis.ProtocolError():
            text = f"{where} does not speak the Redis protocol: {said}"
            return StoreError(text, reason="unreachable")
        case OSError() | EOFError():
            return StoreError(f"no connection to {where}: {said}", reason="unreachable")
        case _:
            return StoreError(f"{where}: {said}", reason="unavailable")


def not_connected(error: BaseException, where: str, stage: str) -> StoreError:
    """Return the `StoreError` for what *stage* of connecting to *where* raised."""
    own = fault(error, where)
    if isinstance(error, ssl.SSLError):
        return unsent(own)
    text = f"no connection to {where}: {stage} failed: {str(error) or type(error).__name__}"
    return StoreError(text, reason=own.reason, is_undone=True)


def timed_out(where: str, timeout: float) -> StoreError:
    """Return the error of requests without a reply from *where* within *timeout* seconds."""
    return StoreError(
        f"{where} did not answer within {timeout:g} s; the request may have been executed, once",
        reason="timeout",
    )


def broken(where: str, error: BaseException | None = None) -> StoreError:
    """Return the error of requests that were written on a connection that then broke."""
    said = f": {error}" if error is not None and str(error) else ""
    return StoreError(
        f"the connection to {where} broke{said}; the request may have been executed, once",
        reason="unreachable",
    )


def closed(where: str, *, is_undone: bool = True) -> StoreError:
    """Return the error of requests to a closed store; *is_undone* if nothing was sent."""
    return StoreError(f"the store at {where} is closed", reason="closed", is_undone=is_undone)


def too_late(where: str, timeout: float) -> StoreError:
    """Return the error of requests whose time was up before they could be sent."""
    return StoreError(
        f"the request could not be sent to {where} within {timeout:g} s; nothing was executed",
        reason="timeout",
        is_undone=True,
    )


def loss(error: BaseException, where: str, timeout: float) -> StoreError:
    """Return the error of requests that were written on a connection that then raised *error*."""
    if isinstance(error, TimeoutError):
        return timed_out(where, timeout)
    if isinstance(error, hiredis.ProtocolError):
        return fault(error, where)
    return broken(where, error)


def fail_all(requests: Iterable[Request], error: StoreError) -> None:
    """Fail all *requests* with *error*, each with a copy: an exception belongs to one caller."""
    for request in requests:
        request.failed(error.copied())


def unsent(error: StoreError) -> StoreError:
    """Return *error* for requests that were not sent."""
    return error.copied(is_undone=True)


def deliver(request: Request, reply: Reply, where: str) -> None:
    """Pass *reply* to *request*, which fails if the reply is malformed."""
    try:
        request.answered(reply)
    except UNREADABLE as error:
        request.failed(unreadable(where, error))


UNREADABLE: Final = (TypeError, ValueError, LookupError, AttributeError)
"""Errors that reading a malformed reply raises."""


def unreadable(where: str, error: BaseException) -> StoreError:
    """Return the error for a malformed reply of *where*."""
    own = StoreError(f"{where} sent a malformed reply: {error}", reason="refused", is_undone=False)
    own.__cause__ = error
    return own
