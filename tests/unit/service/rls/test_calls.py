"""The handler itself: at once or awaited, how many rounds, what is remembered."""

from __future__ import annotations

import inspect

import pytest

from headgate.responses import ResponseOptions
from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.support.rls_client import NOON, OK, OVER, Asker, DistantStore, desc, headers_of, request

USERS = """
version: 1
rules:
  - {id: user, match: {attributes: {user: true}}, key_by: "attribute:user", limit: 3/minute}
  - {id: trial, match: {attributes: {user: true}}, key_by: global, limit: 1/hour, mode: shadow}
  - {id: all, match: {attributes: {all: true}}, key_by: global, limit: 60/hour}
"""
ONE = "version: 1\nrules: [{id: all, key_by: global, limit: 60/minute}]\n"


@pytest.mark.parametrize(
    "descriptors",
    [
        (desc("all=x"),),
        (desc("user=ada"), desc("all=x"), desc("none=x")),
        (desc("all=x", hits=0), desc("user=ada")),
        (desc("all=x", hits=1, negative=True),),
        (desc("none=x"),),
    ],
)
def test_with_a_store_that_never_waits_the_answer_is_there_at_once(
    descriptors: tuple[object, ...],
) -> None:
    asker = Asker(USERS)
    message = request("edge", *descriptors)  # type: ignore[arg-type]  # they are descriptors
    assert isinstance(asker.calls.should_rate_limit(message), bytes)


def distant(policy: str = USERS) -> tuple[Asker, DistantStore]:
    store = DistantStore(ManualClock(NOON))
    return Asker(policy, store=store), store


def test_with_any_other_store_it_is_awaited() -> None:
    asker, _ = distant()
    answer = asker.calls.should_rate_limit(request("edge", desc("all=x")))
    assert inspect.isawaitable(answer)
    assert inspect.iscoroutine(answer)
    answer.close()


def test_many_descriptors_and_rules_are_one_operation() -> None:
    asker, store = distant()
    many = [desc(f"user=u{n}") for n in range(50)] + [desc("all=x")] * 10
    assert asker.code("edge", *many) == OK
    assert store.rounds == 1


def test_what_nothing_limits_asks_nobody() -> None:
    asker, store = distant()
    assert asker.code("edge", desc("none=x")) == OK
    assert store.rounds == 0


def test_a_look_beside_a_charge_takes_two_operations_and_one_if_it_is_refused() -> None:
    asker, store = distant()
    both = (desc("all=x", hits=0), desc("user=ada"))
    assert asker.code("edge", *both) == OK
    assert store.rounds == 2
    asker.ask("edge", desc("all=x"), hits=60)
    before = store.rounds
    assert asker.code("edge", *both) == OVER
    assert store.rounds == before + 1


def test_headers_tell_what_is_left_and_when_to_come_back() -> None:
    asker = Asker(ONE)
    told = headers_of(asker.ask("edge", desc("a=b"), hits=59))
    assert told == {
        "x-ratelimit-limit": "60",
        "x-ratelimit-remaining": "1",
        "x-ratelimit-reset": str(round(NOON) + 59),
        "ratelimit-policy": '"all";q=60;w=60',
        "ratelimit": '"all";r=1;t=1',
    }
    refused = headers_of(asker.ask("edge", desc("a=b"), hits=3))
    assert refused["retry-after"] == "2"
    assert refused["x-ratelimit-remaining"] == "1"


def test_headers_are_those_that_the_operator_chose() -> None:
    def names(answers: ResponseOptions, options: RlsOptions) -> set[str]:
        asker = Asker(ONE, options=options, answers=answers)
        return set(headers_of(asker.ask("edge", desc("a=b"))))

    assert names(ResponseOptions(), RlsOptions(headers=False)) == set()
    few = ResponseOptions(x_ratelimit=False, ratelimit=False, draft03=True)
    expected = {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}
    assert names(few, RlsOptions()) == expected


def test_headers_tell_of_each_rule_once_and_of_a_bounded_number() -> None:
    asker = Asker(
        "version: 1\nrules:\n"
        + "".join(
            f"  - {{id: r{n}, match: {{attributes: {{k: k{n}}}}}, key_by: 'attribute:u',"
            f" limit: {n + 10}/minute}}\n"
            for n in range(30)
        )
    )
    told = headers_of(asker.ask("edge", desc("k=k1", "u=a", hits=3), desc("k=k1", "u=b")))
    assert told["ratelimit"] == '"r1";r=8;t=6'
    many = headers_of(asker.ask("edge", *[desc(f"k=k{n}", "u=c") for n in range(30)]))
    assert many["ratelimit-policy"].count(";q=") == 16
    assert many["x-ratelimit-limit"] == "10"


def test_the_same_request_again_is_counted_again() -> None:
    asker = Asker(USERS)
    message = request("edge", desc("user=ada"))
    answers = [asker.calls.should_rate_limit(message) for _ in range(4)]
    assert len(set(answers)) == 4
