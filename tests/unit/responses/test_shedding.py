"""Refusals for want of capacity: the service is busy, and the caller has done nothing wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headgate.errors import OptionError
from headgate.limits import Concurrency
from headgate.responses import (
    Answer,
    GrpcStatus,
    ResponseOptions,
    grpc_status,
    queue_denial,
    response_for,
)

if TYPE_CHECKING:
    from headgate.decision import HeaderMode

from tests.support.decisions import MS, NOW, answer, decided, outage, refused, told

REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
SHED = told(refused(retry_ms=500), name="lowered", sheds=True)


def test_it_is_503_and_says_that_the_service_is_busy() -> None:
    made = response_for(answer(SHED), now_ns=NOW)
    assert made.status == 503
    assert dict(made.headers)["Retry-After"] == "1"
    assert json.loads(made.body) == {
        "error": "temporarily_overloaded",
        "message": "The service is busy. Try again in 1 second.",
        "limit": "lowered",
        "retry_after_ms": 500,
        "retry_after": 1,
    }


def test_as_a_problem_it_is_a_reduced_capacity_and_names_what_is_short() -> None:
    other = told(decided(), refused(retry_ms=300), name="stack", sheds=True)
    made = response_for(answer(SHED, other), now_ns=NOW, accept="application/problem+json")
    assert json.loads(made.body) == {
        "type": REDUCED_CAPACITY,
        "title": "The service is busy",
        "status": 503,
        "detail": "The service is busy. Try again in 1 second.",
        "violated-policies": ["lowered", "stack/2"],
        "limit": "lowered",
        "retry_after_ms": 500,
        "retry_after": 1,
    }


def test_those_who_were_shed_do_not_come_back_at_once() -> None:
    made = [response_for(answer(SHED, jitter=jitter), now_ns=NOW) for jitter in (0.0, 0.5, 1.0)]
    assert [dict(one.headers)["Retry-After"] for one in made] == ["1", "3", "5"]
    options = ResponseOptions(outage_spread=60.0, shed_status=529)
    other = response_for(answer(SHED, jitter=1.0), now_ns=NOW, options=options)
    assert (other.status, dict(other.headers)["Retry-After"]) == (529, "61")


def test_over_grpc_it_is_unavailable_and_pushes_back() -> None:
    status = grpc_status(answer(SHED, jitter=0.25))
    assert status == GrpcStatus(14, "The service is busy. Try again in 2 seconds.", 1_500)


def test_a_caller_that_has_had_its_quota_hears_that_even_while_the_service_is_busy() -> None:
    exceeded = told(refused(retry_ms=10), name="mine")
    it = answer(SHED, exceeded, told(outage(), name="closed"))
    made = response_for(it, now_ns=NOW, accept="application/problem+json")
    assert made.status == 429
    assert json.loads(made.body)["violated-policies"] == ["mine"]
    assert grpc_status(it).code == 8


def test_want_of_capacity_is_told_before_an_outage() -> None:
    made = response_for(answer(told(outage(), name="closed"), SHED), now_ns=NOW)
    assert json.loads(made.body)["limit"] == "lowered"


def test_an_outage_of_a_rule_that_sheds_is_an_outage() -> None:
    made = response_for(answer(told(outage(), sheds=True)), now_ns=NOW)
    assert json.loads(made.body)["error"] == "temporarily_unavailable"


def test_what_never_fits_under_a_lowered_limit_may_fit_later() -> None:
    made = response_for(answer(told(refused(retry_ms=None), sheds=True)), now_ns=NOW)
    assert dict(made.headers)["Retry-After"] == "1"
    assert json.loads(made.body)["message"] == "The service is busy. Try again in 1 second."


def test_for_a_slot_nobody_waits_until_a_lease_runs_out() -> None:
    slots = refused(Concurrency(20, 60), retry_ms=58_000)
    made = response_for(answer(told(slots, sheds=True)), now_ns=NOW)
    assert dict(made.headers)["Retry-After"] == "1"
    assert json.loads(made.body)["retry_after_ms"] == 1_000


def gate(retry_ms: int, headers: HeaderMode = "on") -> Answer:
    return answer(queue_denial("turns", retry_ms * MS, headers=headers))


def test_a_gate_tells_its_own_wait_and_no_figures() -> None:
    made = response_for(gate(2_500), now_ns=NOW, accept="application/problem+json")
    assert made.status == 503
    assert [name for name, _ in made.headers] == ["Retry-After", "Content-Type", "Cache-Control"]
    found = json.loads(made.body)
    assert (found["violated-policies"], found["retry_after_ms"]) == (["turns"], 2_500)


def test_a_status_that_is_no_refusal_is_an_error() -> None:
    with pytest.raises(OptionError, match="shed_status is 200; expected 400 to 599"):
        ResponseOptions(shed_status=200)
