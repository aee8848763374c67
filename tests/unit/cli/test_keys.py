"""What `headgate keys` refuses before it asks anybody, and how it shows what it found."""

import json
import re

import pytest

from headgate.cli import main
from headgate.cli.keys import as_json, details, rows
from headgate.stores.redis.inspect import Counter, Held, State
from headgate.stores.redis.naming import parse_name
from headgate.units import SECOND


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "set HEADGATE_STORE"),
        (["--store", "memory://"], "inside the process"),
        (["--store", "redis://host:port"], "port"),
        (["--store", "http://host"], "expected redis://"),
        (["--store", "redis://host", "--limit", "0"], "whole number"),
        (["--store", "redis://host", "--show", ""], "the key is empty"),
        (["--store", "redis://host", "--show", "a", "b*"], "pass one of them"),
        (["redis://host"], "write --store before it"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(
    argv: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADGATE_STORE", raising=False)
    assert main(["keys", *argv]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def counter(name: bytes, state: State) -> Counter:
    parsed = parse_name(name)
    assert parsed is not None
    return Counter(name, parsed, state, 3 * SECOND)


FOUND = [
    counter(b":user:42", State("paced", "100/m", None, 3, 2 * SECOND)),
    counter(
        b"shop#1:a\nb",
        State("fixed_window", "5/m", 5, 7, SECOND, (Held("r1", 2, 9 * SECOND),)),
    ),
    counter(
        b"shop~:a\nb",
        State("concurrency", None, None, 1, SECOND, (), (Held("l1", 1, 1, "gold"),)),
    ),
    counter(b"@else!:" + b"0f" * 16, State("paced", "1/s", None, 0, 0)),
]


def test_a_list_has_a_row_for_each() -> None:
    lines = rows(FOUND).splitlines()
    assert [re.split(" {2,}", line) for line in lines] == [
        ["KEY", "NAMESPACE", "COUNTER", "KIND", "LIMIT", "IN USE", "AS NEW IN", "TTL"],
        ["user:42", "headgate", "limits[0]", "paced", "100/m", "3", "2s", "3s"],
        [r"a\nb", "shop", "limits[1]", "fixed_window", "5/m", "7 of 5, 2 held", "1s", "3s"],
        [r"a\nb", "shop", "limits[0]", "concurrency", "-", "1", "1s", "3s"],
        ["0f" * 16 + " (digest)", "-", "group=else", "paced", "1/s", "0", "0s", "3s"],
    ]


def test_a_portrait_tells_who_holds_what() -> None:
    shown = details(FOUND[1:3])
    assert shown.count("in namespace shop") == 1
    assert r"redis key  shop#1:a\nb" in shown
    assert "reserved   2 for 9s by r1" in shown
    assert "slot       for 1ms by l1 of gold" in shown


def test_json_has_all_of_it_in_seconds() -> None:
    told = json.loads(as_json(FOUND, has_more=True))
    assert told["more"] is True
    assert told["counters"][1] == {
        "key": "a\nb",
        "is_digest": False,
        "namespace": "shop",
        "counter": "limits[1]",
        "place": 1,
        "kind": "fixed_window",
        "limit": "5/m",
        "quota": 5,
        "in_use": 7,
        "held": 2,
        "as_new_in": 1.0,
        "ttl": 3.0,
        "redis_key": "shop#1:a\nb",
        "reservations": [{"amount": 2, "name": "r1", "ends_in": 9.0}],
        "slots": [],
    }
