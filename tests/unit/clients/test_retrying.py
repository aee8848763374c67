"""Which requests may be sent again."""

import pytest

from headgate.clients.attempt import is_repeatable


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
def test_an_idempotent_method_may_be_repeated(method: str) -> None:
    assert is_repeatable(method, None, replayable=True)


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "LOCK", "post", ""])
def test_any_other_may_not(method: str) -> None:
    assert not is_repeatable(method, None, replayable=True)


@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
def test_an_idempotency_key_makes_any_method_repeatable(method: str) -> None:
    assert is_repeatable(method, '"order-17"', replayable=True)


@pytest.mark.parametrize("key", ["", "  ", '""'])
def test_an_empty_key_is_none(key: str) -> None:
    assert not is_repeatable("POST", key, replayable=True)


@pytest.mark.parametrize(("method", "key"), [("PUT", None), ("POST", "order-17")])
def test_a_body_that_is_gone_cannot_be_repeated(method: str, key: str | None) -> None:
    assert not is_repeatable(method, key, replayable=False)
