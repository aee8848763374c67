"""The debug header: who may see it, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import http_sf
import pytest

from headgate.errors import OptionError
from headgate.responses.debug import LONGEST_LINE, Traced, debug_token, decision_lines, is_genuine
from headgate.units import SECOND

SECRET = b"secret"
NOW = 1_763_000_000 * SECOND + 5


def read(value: str) -> Any:
    return http_sf.parse(value.encode(), tltype="list")


def test_a_token_is_good_until_it_ends() -> None:
    token, ends = debug_token(SECRET, now_ns=NOW, ttl_s=60)
    assert is_genuine(token, SECRET, now_ns=NOW)
    assert is_genuine(token, SECRET, now_ns=ends * SECOND - 1)
    assert not is_genuine(token, SECRET, now_ns=ends * SECOND)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:0],
        lambda token: token[:-1],
        lambda token: token + "0",
        lambda token: str(int(token.partition(".")[0]) + 1) + token[token.index(".") :],
        lambda token: token.upper() if token.upper() != token else "x",
        lambda token: f" {token}",
        lambda token: f"{token}\n",
        lambda token: "9" * 12 + token[token.index(".") :],
    ],
)
def test_any_other_is_not(change: object) -> None:
    token, _ = debug_token(SECRET, now_ns=NOW, ttl_s=60)
    assert callable(change)
    assert not is_genuine(change(token), SECRET, now_ns=NOW)


def test_nor_one_of_another_secret_or_of_none() -> None:
    token, _ = debug_token(SECRET, now_ns=NOW, ttl_s=60)
    assert not is_genuine(token, b"other", now_ns=NOW)
    assert not is_genuine(token, b"", now_ns=NOW)
    with pytest.raises(OptionError, match="there is none"):
        debug_token(b"", now_ns=NOW, ttl_s=60)
    with pytest.raises(OptionError, match="expected 1 to 86400"):
        debug_token(SECRET, now_ns=NOW, ttl_s=86_401)


def traced(key: str = "ip=~77c1", remaining: int | None = 2) -> Traced:
    return Traced(
        "per-ip",
        allowed=True,
        mode="enforce",
        key=key,
        counter="8=headgate=per-ip",
        limit="3/m",
        quota=3,
        remaining=remaining,
        cost=1,
        source="store",
        revision=7,
    )


def test_the_header_is_a_list_of_structured_fields() -> None:
    name, value = decision_lines([traced(), traced(remaining=None)])[0]
    assert name == "Headgate-Decision"
    first, second = read(value)
    assert first[0] == "per-ip"
    assert {key: str(each) for key, each in first[1].items()} == {
        "allowed": "True",
        "mode": "enforce",
        "key": "ip=~77c1",
        "counter": "8=headgate=per-ip",
        "limit": "3/m",
        "used": "1",
        "remaining": "2",
        "cost": "1",
        "source": "store",
        "revision": "7",
    }
    assert "used" not in second[1]


@pytest.mark.parametrize("key", ['a"b\\', "é\r\nSet-Cookie: x", "\ud800", "x" * 100_000, "%41"])
def test_hostile_keys_stay_in_their_place(key: str) -> None:
    _, value = decision_lines([traced(key)])[0]
    assert value.isascii()
    assert value.isprintable()
    assert len(value) < 1_000
    assert len(read(value)) == 1


def test_nothing_applied() -> None:
    assert decision_lines([])[0] == ("Headgate-Decision", "none")


def test_a_header_about_many_rules_is_short_and_has_what_refused() -> None:
    many = [replace(traced(), rule=f"rule-{n}") for n in range(100)]
    many[90] = replace(many[90], allowed=False)
    many[95] = replace(many[95], allowed=False, mode="shadow")
    _, value = decision_lines(many)[0]
    assert len(value) <= LONGEST_LINE
    *items, more = read(value)
    named = [item for item, _ in items]
    assert "rule-90" in named
    assert "rule-95" not in named
    assert named == sorted(named, key=lambda name: int(name.partition("-")[2]))
    assert named[:5] == [f"rule-{n}" for n in range(5)]
    assert str(more[0]) == "more"
    assert more[1]["count"] == 100 - len(items)


def test_the_longest_item_fits() -> None:
    odd = "\u20ac" * 500
    longest = replace(traced(odd), rule="x" * 500, counter=odd, limit='"' * 500, source=odd)
    _, value = decision_lines([longest, longest])[0]
    assert len(value) <= LONGEST_LINE
    first, more = read(value)
    assert first[0] == "x" * 200 + "..."
    assert more[1]["count"] == 1


def test_what_is_empty_is_not_told() -> None:
    turn = Traced("turns", allowed=True, mode="enforce", cost=1, source="gate", revision=0)
    assert decision_lines([turn])[0][1] == (
        '"turns";allowed=?1;mode=enforce;cost=1;source=gate;revision=0'
    )
