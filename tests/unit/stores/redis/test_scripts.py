"""The scripts as they are sent."""

from __future__ import annotations

import re
from hashlib import sha1

import pytest

from headgate.stores.redis.requests import script

NAMES = (
    "hit",
    "hit_ticks",
    "take",
    "hold",
    "settle",
    "charge",
    "refund",
    "renew_slot",
    "release_slot",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_whole_and_known_by_its_digest(name: str) -> None:
    one = script(name)
    assert b"--@" not in one.text
    assert one.digest.decode() == sha1(one.text, usedforsecurity=False).hexdigest()
    assert script(name) is one


@pytest.mark.parametrize("name", NAMES)
def test_a_script_never_scans_the_keys_and_says_what_it_takes(name: str) -> None:
    text = script(name).text.decode()
    assert not re.search(r"'(KEYS|SCAN|FLUSHALL|FLUSHDB)'", text)
    for word in ("-- KEYS ", "-- ARGV ", "-- reply "):
        assert word in text


@pytest.mark.parametrize("name", NAMES)
def test_a_script_writes_no_key_without_a_ttl(name: str) -> None:
    text = script(name).text.decode()
    for call in re.findall(r"'SET',[^\n]*", text):
        assert "'PX'" in call or "'EX'" in call
    assert ("'RPUSH'" in text) <= ("'PEXPIRE', list" in text)
    assert ("'ZADD'" in text) <= ("'PEXPIRE', spec.key" in text)
