"""What callers and balancers hear of queues."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decision import Decision
from headgate.limits import LeakyQueue
from headgate.responses import (
    Answer,
    Load,
    ResponseOptions,
    Throughput,
    headers_for,
    pressure_lines,
)
from headgate.responses.pressure import orca_line
from tests.support.decisions import MS, NOW, answer, decided, refused, told

TURNS = Load("turns", waiting=12, expected_wait_ns=340 * MS, in_flight=20, slots=20)
QUEUE = LeakyQueue(10, 100)


def delayed(delay_ms: int, *, left: int = 97) -> Decision:
    """A decision that admits with a delay."""
    return Decision(
        "k",
        QUEUE,
        allowed=True,
        remaining=left,
        retry_after_ns=0,
        reset_after_ns=(delay_ms + 100) * MS,
        delay_ns=delay_ms * MS,
    )


def parsed(value: str, kind: str = "list") -> Any:
    return http_sf.parse(value.encode(), tltype=kind)


def headers(it: Answer, **options: Any) -> dict[str, str]:
    lines = headers_for(it, now_ns=NOW, options=ResponseOptions(**options))
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def test_a_gate_tells_who_waits_for_how_long_and_what_is_in_use() -> None:
    found = dict(pressure_lines([TURNS], 250 * MS, ResponseOptions()))
    assert found == {
        "Headgate-Queue": '"turns";waiting=12;wait=0.34;in-flight=20;slots=20',
        "Headgate-Delay": "0.25",
    }


def test_what_is_not_known_is_not_told_and_nothing_is_told_of_no_delay() -> None:
    lines = pressure_lines([Load("a"), Load("b", 1, 1)], 0, ResponseOptions())
    assert lines == [("Headgate-Queue", '"a";waiting=0;wait=0.0, "b";waiting=1;wait=0.001')]
    assert pressure_lines([], 0, ResponseOptions()) == []
    assert pressure_lines([TURNS], 1, ResponseOptions(pressure=False)) == []


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    st.integers(-5, 10**18),
    st.integers(-5, 10**30),
    st.none() | st.integers(0, 10**18),
    st.none() | st.integers(0, 10**18),
    st.integers(1, 10**30),
)
def test_both_are_structured_fields_that_round_up(
    name: str, waiting: int, wait: int, in_flight: int | None, slots: int | None, delay: int
) -> None:
    load = Load(name, waiting, wait, in_flight, slots)
    lines = dict(pressure_lines([load, load], delay, ResponseOptions()))
    (item, other) = parsed(lines["Headgate-Queue"])
    assert item == other
    text, parameters = item
    assert text == name
    assert parameters["waiting"] == min(max(waiting, 0), 10**15 - 1)
    assert isinstance(parameters["wait"], Decimal)
    assert ("in-flight" in parameters, "slots" in parameters) == (
        in_flight is not None,
        slots is not None,
    )
    seconds, _ = parsed(lines["Headgate-Delay"], "item")
    assert isinstance(seconds, Decimal)
    assert seconds * 10**9 >= min(delay, 10**20)


def test_a_request_that_has_to_wait_is_told_so_and_how_long_the_queue_is() -> None:
    found = headers(answer(told(delayed(300), name="exports")))
    assert found["Headgate-Queue"] == '"exports";waiting=3;wait=0.4'
    assert found["Headgate-Delay"] == "0.3"
    assert (found["X-RateLimit-Limit"], found["X-RateLimit-Remaining"]) == ("101", "97")
    assert found["RateLimit"] == '"exports";r=97;t=1'
    assert found["RateLimit-Policy"] == '"exports";q=110;w=11;hg-queue=100'


def test_one_that_has_its_turn_at_once_is_told_of_no_delay() -> None:
    found = headers(answer(told(delayed(0, left=100), name="exports")))
    assert found["Headgate-Queue"] == '"exports";waiting=0;wait=0.1'
    assert "Headgate-Delay" not in found


def test_a_full_queue_says_when_there_is_room() -> None:
    full = refused(QUEUE, retry_ms=40, reset_ms=10_040)
    found = headers(answer(told(full, name="exports")))
    assert found["Headgate-Queue"] == '"exports";waiting=100;wait=10.04'
    assert found["RateLimit"] == '"exports";r=0;t=1'
    assert found["Retry-After"] == "1"


def test_delays_of_limits_are_one_and_that_of_a_gate_comes_after() -> None:
    it = answer(told(delayed(300), name="a"), told(delayed(200), name="b"), told(decided()))
    it = replace(it, loads=(TURNS,), delayed_ns=50 * MS)
    found = headers(it)
    assert found["Headgate-Delay"] == "0.35"
    names = [item for item, _ in parsed(found["Headgate-Queue"])]
    assert names == ["a", "b", "turns"]


@pytest.mark.parametrize("mode", ["brief", "off", "redacted"])
def test_a_rule_that_is_not_to_be_told_of_does_not_tell_of_its_queue(mode: Any) -> None:
    assert headers(answer(told(delayed(300), headers=mode))) == {}


def test_balancers_hear_of_the_fullest_gate_as_they_read_it() -> None:
    name, value = orca_line([TURNS, Load("idle", 0, 0, 1, 10), Load("rate", 3)], 41.5)
    assert name == "endpoint-load-metrics"
    kind, _, text = value.partition(" ")
    assert kind == "JSON"
    assert json.loads(text) == {
        "application_utilization": 1.6,
        "rps_fractional": 41.5,
        "named_metrics": {"headgate_waiting": 15, "headgate_wait_seconds": 0.34},
    }


def test_the_load_is_told_only_if_asked_for_and_in_refusals_too() -> None:
    for it in (answer(told(decided())), answer(told(refused(), headers="redacted"))):
        loaded = replace(it, loads=(TURNS,), requests_per_second=3.0)
        assert "endpoint-load-metrics" not in headers(loaded)
        assert '"rps_fractional":3.0' in headers(loaded, orca=True)["endpoint-load-metrics"]
        assert "endpoint-load-metrics" not in headers(it, orca=True)


def test_requests_are_counted_by_the_second() -> None:
    counted = Throughput()
    assert counted.per_second(NOW) == 0
    for n in range(100):
        counted.add(n * 10 * MS)
    assert counted.per_second(1_000 * MS) == 100
    assert counted.per_second(1_500 * MS) == 50
    counted.add(1_500 * MS)
    assert counted.per_second(1_750 * MS) == 26
    assert counted.per_second(9_000 * MS) == 0
