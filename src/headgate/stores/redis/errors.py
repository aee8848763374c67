"""From what a server or its driver says to a `StoreError` that a person understands."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

import hiredis
from redis import exceptions as driver

from headgate.errors import StoreError, StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.stores.redis.request import Reply, Request

DRIVER_ERRORS: Final = (
    driver.RedisError,
    driver.RedisClusterException,
    driver.IncorrectPolicyType,
    driver.ChildDeadlockedError,
    hiredis.HiredisError,
    OSError,  # with it TimeoutError, which is asyncio's and the socket's, and ssl.SSLError
    EOFError,
    ValueError,
)
"""All that connecting, sending and reading may raise; `fault` makes a `StoreError` of it."""

_CODES: Final[Mapping[str, tuple[StoreFault, str]]] = {
    "READONLY": ("readonly", "is a replica and takes no writes"),
    "MASTERDOWN": ("readonly", "is a replica that has lost its primary"),
    "LOADING": ("loading", "has just started and is reading its data"),
    "BUSY": ("busy", "is running a script that does not end"),
    "OOM": ("out_of_memory", "has no memory left: raise maxmemory, or let it evict keys"),
    "NOAUTH": ("denied", "wants a password, and the store URL has none"),
    "WRONGPASS": ("denied", "does not accept the user name and password of the store URL"),
    "NOPERM": ("denied", "does not allow the user of the store URL to do this"),
    "CLUSTERDOWN": ("cluster_down", "is part of a cluster that is down"),
    "TRYAGAIN": ("cluster_down", "is moving the slot, and its keys are still apart"),
    "MISCONF": ("refused", "takes no writes because it cannot save its data to disk"),
    "NOREPLICAS": ("refused", "takes no writes because too few replicas follow it"),
    "MOVED": ("refused", "is part of a cluster: use redis+cluster:// in the store URL"),
    "ASK": ("refused", "is part of a cluster: use redis+cluster:// in the store URL"),
    "CROSSSLOT": ("refused", "was asked for keys of different slots at once"),
}
_AUTH_TROUBLE: Final = ("ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH")
_ACL_TROUBLE: Final = re.compile("The user executing the script can't|ACL failure in script")
_INNER_CODE: Final = re.compile(r"Error running script.*?-([A-Z]+) ")
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*", re.DOTALL)
_CLASSES: Final[tuple[tuple[type[Exception], StoreFault], ...]] = (
    (driver.AuthenticationError, "denied"),
    (driver.AuthorizationError, "denied"),
    (driver.ExternalAuthProviderError, "denied"),
    (driver.NoPermissionError, "denied"),
    (driver.AuthenticationWrongNumberOfArgsError, "denied"),
    (driver.BusyLoadingError, "loading"),
    (driver.ReadOnlyError, "readonly"),
    (driver.MasterDownError, "readonly"),
    (driver.OutOfMemoryError, "out_of_memory"),
    (driver.ClusterDownError, "cluster_down"),
    (driver.TryAgainError, "cluster_down"),
    (driver.SlotNotCoveredError, "cluster_down"),
    (driver.ResponseError, "refused"),
    (driver.TimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (driver.InvalidResponse, "unreachable"),
    (hiredis.ProtocolError, "unreachable"),
    (driver.ConnectionError, "unreachable"),
    (OSError, "unreachable"),
    (EOFError, "unreachable"),
)


def code_of(text: str) -> str:
    """The word by which an error reply says what it is, such as NOSCRIPT."""
    inner = _INNER_CODE.search(text)  # before Redis 7 what a script met stands inside
    return inner[1] if inner else text.partition(" ")[0]


def store_error(text: str, where: str) -> StoreError:
    """The error that the server at *where* meant by an error reply, whose text is *text*."""
    text = _ARGUMENTS.sub("", text)  # they may be somebody's keys
    if text.startswith(_AUTH_TROUBLE):
        return StoreError(
            f"{where} does not accept the password of the store URL: {text}", reason="denied"
        )
    code = "NOPERM" if _ACL_TROUBLE.search(text) else code_of(text)
    reason, meaning = _CODES.get(code, ("refused", "refused"))
    return StoreError(f"{where} {meaning}: {text}", reason=reason)


def fault(error: BaseException, where: str) -> StoreError:
    """The `StoreError` for what a driver, a socket or a parser raised about *where*."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, hiredis.ReplyError):
        return store_error(str(error), where)
    reason: StoreFault = "unavailable"
    reason = next((word for kind, word in _CLASSES if isinstance(error, kind)), reason)
    said = str(error) or type(error).__name__
    if reason == "timeout":
        return StoreError(f"{where} did not answer in time: {said}", reason=reason)
    cause = error.__cause__ or error.__context__ or error
    if isinstance(error, ssl.SSLError) or isinstance(cause, ssl.SSLError):
        return StoreError(f"no TLS connection to {where}: {said}", reason="unreachable")
    if isinstance(error, (driver.InvalidResponse, hiredis.ProtocolError)):
        return StoreError(f"{where} does not speak the Redis protocol: {said}", reason=reason)
    if reason == "unreachable":
        return StoreError(f"no connection to {where}: {said}", reason=reason)
    return StoreError(f"{where}: {said}", reason=reason)


def not_connected(error: BaseException, where: str, stage: str) -> StoreError:
    """The `StoreError` for what *stage* of connecting to *where* raised."""
    own = fault(error, where)
    if isinstance(error, StoreError | hiredis.ReplyError | ssl.SSLError):
        return own.copied(is_undone=True)
    text = str(error) or type(error).__name__
    return StoreError(
        f"no connection to {where}: {stage} failed: {text}", reason=own.reason, is_undone=True
    )


def timed_out(where: str, timeout: float) -> StoreError:
    """What was sent to *where* was not answered within *timeout* seconds."""
    return StoreError(
        f"{where} did not answer within {timeout:g} s; what was asked may have been done, once",
        reason="timeout",
    )


def broken(where: str, error: BaseException | None = None) -> StoreError:
    """The connection to *where* broke after something had been written on it."""
    said = f": {error}" if error is not None and str(error) else ""
    return StoreError(
        f"the connection to {where} broke{said}; what was asked may have been done, once",
        reason="unreachable",
    )


def closed(where: str, *, is_undone: bool = True) -> StoreError:
    """The store was closed by its owner; with `is_undone=False` after something had been sent."""
    return StoreError(f"the store at {where} is closed", reason="closed", is_undone=is_undone)


def too_late(where: str, timeout: float) -> StoreError:
    """Time was up before anything could be sent."""
    return StoreError(
        f"{where} could not be asked within {timeout:g} s; nothing was sent",
        reason="timeout",
        is_undone=True,
    )


def loss(error: BaseException, where: str, timeout: float) -> StoreError:
    """What became of requests that were written on a connection that then raised *error*."""
    if isinstance(error, (TimeoutError, driver.TimeoutError)):
        return timed_out(where, timeout)
    if isinstance(error, (driver.InvalidResponse, hiredis.ProtocolError)):
        return fault(error, where)
    return broken(where, error)


def fail_all(requests: Iterable[Request], error: StoreError) -> None:
    """Fail all *requests* with *error*, each with a copy: exceptions are not for sharing."""
    for request in requests:
        request.failed(error.copied())


def unsent(error: StoreError) -> StoreError:
    """*error*, which came before anything was sent."""
    return error.copied(is_undone=True)


def deliver(request: Request, reply: Reply, where: str) -> None:
    """Hand *reply* to *request*, which fails if it is no reply to what was asked."""
    try:
        request.answered(reply)
    except UNREADABLE as error:
        request.failed(unreadable(where, error))


UNREADABLE: Final = (TypeError, ValueError, LookupError, AttributeError)
"""What reading a reply raises that is not what it should be."""


def unreadable(where: str, error: BaseException) -> StoreError:
    """The server at *where* answered, and nobody knows what."""
    own = StoreError(
        f"{where} answered what is no answer: {error}", reason="refused", is_undone=False
    )
    own.__cause__ = error
    return own
