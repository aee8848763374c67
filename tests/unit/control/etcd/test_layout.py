"""How revisions lie in etcd: keys in order, values that know themselves."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode

import pytest

from headgate.control.etcd.source import Layout, decode, encode
from headgate.control.revision import Change, Revision, SourceError


def revision(rules: int) -> Revision:
    document = {"version": 1, "rules": [{"id": f"rule-{n}", "limit": "1/s"} for n in range(rules)]}
    return Revision(3, document, {"rule-0": 2}, Change("ada", 12, "put rule", "a note"))


def test_keys_are_in_the_order_of_the_numbers_and_between_the_ends() -> None:
    layout = Layout("/teams/a/")
    keys = [b64decode(layout.at(number)) for number in (0, 1, 2, 9, 10, 99, 100, 10**12)]
    head, end = b64decode(layout.head), b64decode(layout.end)
    assert keys == sorted(keys)
    assert keys[-1] < end
    assert head == b"/teams/a/policy"
    assert not keys[0] <= head < end


@pytest.mark.parametrize("rules", [0, 1, 5_000])
def test_what_is_encoded_is_decoded(rules: int) -> None:
    assert decode(encode(revision(rules), "0a")) == revision(rules)


def test_small_values_are_json_for_people_and_large_ones_are_compressed() -> None:
    small, large = encode(revision(1), "0a"), encode(revision(5_000), "0a")
    assert json.loads(small)["nonce"] == "0a"
    assert json.loads(small)["number"] == 3
    assert json.loads(zlib.decompress(large))["nonce"] == "0a"
    assert len(large) < len(revision(5_000).to_json()) / 5


def test_two_writers_of_the_same_write_different_values() -> None:
    assert encode(revision(1), "0a") != encode(revision(1), "0b")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"plain text",
        b'{"number":"one","document":{},"versions":{},"change":{}}',
        zlib.compress(b"no JSON"),
        encode(revision(5_000), "0a")[:-10],
    ],
)
def test_what_is_no_revision_is_an_error(value: bytes) -> None:
    with pytest.raises(SourceError):
        decode(value)


def test_a_value_that_explodes_is_refused() -> None:
    bomb = zlib.compress(b"[" + b" " * (70 * 2**20))
    assert len(bomb) < 100_000
    with pytest.raises(SourceError, match="longer than"):
        decode(bomb)
