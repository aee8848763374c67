"""Every error of etcd becomes one of ours that says what is the matter."""

from __future__ import annotations

import grpc
import pytest

from headgate.control.etcd.errors import EtcdError, error_of, kind_of
from headgate.control.revision import SourceError

CODE = grpc.StatusCode
SAID = {
    (CODE.UNAVAILABLE, "etcdserver: no leader"): "no_leader",
    (CODE.UNAVAILABLE, "etcdserver: leader changed"): "no_leader",
    (CODE.FAILED_PRECONDITION, "etcdserver: not leader"): "no_leader",
    (CODE.UNAVAILABLE, "etcdserver: request timed out"): "no_leader",
    (
        CODE.UNAVAILABLE,
        "etcdserver: request timed out, possibly due to previous leader failure",
    ): "no_leader",
    (CODE.UNAVAILABLE, "etcdserver: unhealthy cluster"): "no_leader",
    (CODE.UNAVAILABLE, "etcdserver: server stopped"): "unreachable",
    (CODE.UNAVAILABLE, "etcdserver: rpc not supported for learner"): "unreachable",
    (CODE.UNAVAILABLE, "failed to connect to all addresses"): "unreachable",
    (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded"): "timeout",
    (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests"): "busy",
    (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"): "full",
    (CODE.INVALID_ARGUMENT, "etcdserver: request is too large"): "too_large",
    (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token"): "token",
    (CODE.INVALID_ARGUMENT, "etcdserver: revision of auth store is old"): "token",
    (CODE.INVALID_ARGUMENT, "etcdserver: user name is empty"): "token",
    (
        CODE.INVALID_ARGUMENT,
        "etcdserver: authentication failed, invalid user ID or password",
    ): "login",
    (CODE.PERMISSION_DENIED, "etcdserver: permission denied"): "denied",
    (CODE.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"): "compacted",
    (CODE.DATA_LOSS, "etcdserver: corrupt cluster"): "rejected",
    (CODE.UNKNOWN, "what nobody has heard of"): "rejected",
}


def said(code: grpc.StatusCode, detail: str) -> EtcdError:
    return error_of("host:2379", code.value[0], detail)


@pytest.mark.parametrize(("words", "kind"), SAID.items())
def test_what_etcd_says_is_understood(words: tuple[grpc.StatusCode, str], kind: str) -> None:
    error = said(*words)
    assert error.kind == kind
    assert str(error).startswith("etcd at host:2379 ")
    assert words[1] in str(error)


@pytest.mark.parametrize("code", [code for code in CODE if code is not CODE.OK])
def test_every_code_becomes_a_storage_error(code: grpc.StatusCode) -> None:
    error = said(code, "")
    assert isinstance(error, SourceError)
    assert str(code.value[0]) in str(error)


def test_only_what_etcd_itself_has_turned_down_has_certainly_not_been_done() -> None:
    certain = {kind for (code, detail), kind in SAID.items() if said(code, detail).is_certain}
    assert certain == {"token", "login", "denied", "too_large", "full", "compacted"}


def test_a_reason_that_is_wrapped_is_understood_too() -> None:
    assert kind_of("rpc error: code = PermissionDenied desc = etcdserver: permission denied") == (
        "denied"
    )
    assert kind_of("something else") is None


def test_a_message_is_one_line_and_no_novel() -> None:
    text = str(said(CODE.UNKNOWN, "line\nline\t" * 1_000))
    assert "\n" not in text
    assert len(text) < 400
