"""Error replies and errors of sockets become a `StoreError` with the right reason."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

import hiredis
import pytest

from headgate.stores.redis import errors

if TYPE_CHECKING:
    from headgate.errors import StoreFault

WHERE = "10.0.0.1:6379"
RAISED: dict[type[Exception], StoreFault] = {
    OSError: "unreachable",
    ConnectionResetError: "unreachable",
    socket.gaierror: "unreachable",
    EOFError: "unreachable",
    ssl.SSLError: "unreachable",
    ssl.SSLCertVerificationError: "unreachable",
    TimeoutError: "timeout",
    asyncio.TimeoutError: "timeout",
    hiredis.ProtocolError: "unreachable",
    ValueError: "unavailable",
}
REPLIES: list[tuple[str, StoreFault, str]] = [
    ("READONLY You can't write against a read only replica.", "readonly", "is a replica"),
    ("MASTERDOWN Link with MASTER is down", "readonly", "lost its primary"),
    ("LOADING Redis is loading the dataset in memory", "loading", "just started"),
    ("BUSY Redis is busy running a script.", "busy", "does not end"),
    ("OOM command not allowed when used memory > 'maxmemory'.", "out_of_memory", "no memory left"),
    ("NOAUTH Authentication required.", "denied", "needs a password"),
    ("WRONGPASS invalid username-password pair", "denied", "does not accept"),
    ("NOPERM this user has no permissions", "denied", "does not allow"),
    ("ERR The user executing the script can't run this command", "denied", "does not allow"),
    ("ERR ACL failure in script: User x has no permissions", "denied", "does not allow"),
    ("ERR invalid password", "denied", "does not accept"),
    ("ERR AUTH <password> called without any password configured", "denied", "does not accept"),
    ("CLUSTERDOWN Hash slot not served", "cluster_down", "cluster that is down"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", "cluster_down", "moving the slot"),
    ("MISCONF Redis is configured to save RDB snapshots", "refused", "cannot save"),
    ("NOREPLICAS Not enough good replicas to write.", "refused", "too few replicas"),
    ("MOVED 3999 127.0.0.1:6381", "refused", "use redis+cluster://"),
    ("WRONGTYPE Operation against a key", "refused", "WRONGTYPE"),
    ("ERR max number of clients reached", "refused", "max number of clients"),
    ("", "refused", WHERE),
    (
        "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed",
        "out_of_memory",
        "no memory left",
    ),
]


@pytest.mark.parametrize(("text", "reason", "hint"), REPLIES)
def test_an_error_reply_is_explained(text: str, reason: StoreFault, hint: str) -> None:
    error = errors.store_error(text, WHERE)
    assert error.reason == reason
    assert hint in str(error)
    assert str(error).startswith(WHERE)
    assert text in str(error)


def test_keys_are_not_repeated() -> None:
    text = "ERR unknown command 'EVALSHA', with args beginning with: 'abc' '1' 'user:ada'"
    assert "ada" not in str(errors.store_error(text, WHERE))


@pytest.mark.parametrize("kind", RAISED)
def test_what_is_raised_has_the_right_reason(kind: type[Exception]) -> None:
    raised = kind("said")
    assert isinstance(raised, errors.DRIVER_ERRORS)
    assert errors.fault(raised, WHERE).reason == RAISED[kind]


def test_an_error_of_tls_is_named() -> None:
    error = ssl.SSLCertVerificationError("certificate verify failed")
    assert "no TLS connection" in str(errors.fault(error, WHERE))


def test_what_was_written_may_have_been_done() -> None:
    late = errors.loss(TimeoutError(), WHERE, 0.5)
    assert (late.reason, "within 0.5 s" in str(late)) == ("timeout", True)
    assert "may have been executed" in str(late)
    assert errors.loss(EOFError("closed"), WHERE, 0.5).reason == "unreachable"
    assert errors.loss(hiredis.ProtocolError("what?"), WHERE, 0.5).reason == "unreachable"
