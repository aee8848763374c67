"""Messages, statuses and deadlines as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.wire import (
    Messages,
    framed,
    only_message,
    percent_encoded,
    status,
    timeout_s,
)

LIMIT = 1000


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.lists(st.integers(min_value=1, max_value=30), min_size=1),
)
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    sent: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(map(framed, sent))
    messages = Messages(LIMIT)
    found: list[bytes] = []
    at = turn = 0
    while at < len(whole):
        size = cuts[turn % len(cuts)]
        found += messages.feed(whole[at : at + size])
        at, turn = at + size, turn + 1
    assert found == sent
    assert messages.held == 0


def test_what_is_not_whole_is_held_and_counted() -> None:
    messages = Messages(LIMIT)
    assert messages.feed(framed(b"one") + framed(b"two")[:-1]) == [b"one"]
    assert messages.held == 7
    assert messages.feed(b"o") == [b"two"]
    assert messages.held == 0


def test_a_message_at_the_limit_passes_and_one_above_is_refused_before_it_comes() -> None:
    assert Messages(LIMIT).feed(framed(b"x" * LIMIT)) == [b"x" * LIMIT]
    with pytest.raises(CallError, match="1001 bytes is longer than 1000") as caught:
        Messages(LIMIT).feed(framed(b"x" * (LIMIT + 1))[:5])
    assert caught.value.code is Code.RESOURCE_EXHAUSTED


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.lists(st.integers(min_value=1, max_value=30), min_size=1),
)
def test_of_a_message_above_the_limit_there_is_one_byte_more_where_that_is_wanted(
    sent: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(map(framed, sent))
    messages = Messages(9, truncates=True)
    found: list[bytes] = []
    at = turn = 0
    while at < len(whole):
        size = cuts[turn % len(cuts)]
        found += messages.feed(whole[at : at + size])
        assert messages.held < 10 + 5
        at, turn = at + size, turn + 1
    assert found == [one[:10] for one in sent]


def test_a_compressed_message_is_refused() -> None:
    with pytest.raises(CallError, match="identity") as caught:
        Messages(LIMIT).feed(b"\x01\0\0\0\x01x")
    assert caught.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600),
        (b"2M", 120),
        (b"3S", 3),
        (b"20m", 0.02),
        (b"5u", 5e-6),
        (b"7n", 7e-9),
        (b"0S", 0),
        (b"99999999H", 99999999 * 3600),
    ],
)
def test_a_deadline_has_digits_and_a_unit(value: bytes, seconds: float) -> None:
    assert timeout_s(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"S", b"1", b"1s", b"-1S", b"1.5S", b"123456789S", b"1 S"])
def test_any_other_deadline_is_refused(value: bytes) -> None:
    with pytest.raises(CallError) as caught:
        timeout_s(value)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_text_keeps_printable_ascii_and_nothing_else() -> None:
    assert percent_encoded("a b~") == b"a b~"
    assert percent_encoded("50%\r\n\x7f") == b"50%25%0D%0A%7F"
    assert percent_encoded("é\U0001f6a6") == b"%C3%A9%F0%9F%9A%A6"
    assert percent_encoded("\ud800") == b"?"


def test_a_status_has_its_number_and_a_text_of_bounded_length() -> None:
    assert status(Code.INTERNAL, "") == [(b"grpc-status", b"13")]
    fields = dict(status(Code.NOT_FOUND, "x" * 5000))
    assert fields[b"grpc-status"] == b"5"
    assert len(fields[b"grpc-message"]) == 1024


def test_bytes_that_are_one_message_are_known_as_such() -> None:
    assert only_message(framed(b"hello"), 5) == b"hello"
    assert only_message(framed(b""), 5) == b""


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0\0", framed(b"hello")[:-1], framed(b"hello") + b"x", b"\1" + framed(b"hi")[1:]],
    ids=["nothing", "half a prefix", "too short", "too long", "compressed"],
)
def test_other_bytes_are_not_one_message(data: bytes) -> None:
    assert only_message(data, LIMIT) is None


def test_a_message_beyond_what_is_read_is_not_known_as_one() -> None:
    assert only_message(framed(b"hello"), 4) is None
