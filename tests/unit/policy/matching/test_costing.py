from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.conditions import cost_after, cost_in_response, cost_of
from headgate.policy.model import After, Cost, EndpointCost
from headgate.policy.path import normalised_path

BY_ENDPOINT = Cost(
    default=2,
    endpoints=(
        EndpointCost("/export/pdf", 10, "POST"),
        EndpointCost("/export/*", 5),
        EndpointCost("/free/**", 0),
    ),
)


def cost(of: Cost, request: Request) -> int:
    return cost_of(of, request, normalised_path(request.path))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/export/pdf", 10),
        ("post", "/EXPORT//pdf/", 10),
        ("GET", "/export/pdf", 5),
        ("GET", "/export/a%2Fb", 5),
        ("GET", "/export", 2),
        ("GET", "/free", 0),
        ("GET", "/other", 2),
    ],
)
def test_the_first_endpoint_that_fits_says_the_cost(method: str, path: str, expected: int) -> None:
    assert cost(BY_ENDPOINT, Request(method=method, path=path)) == expected


def test_head_costs_what_get_costs_unless_it_is_named_before() -> None:
    get, head = EndpointCost("/x", 5, "GET"), EndpointCost("/x", 3, "HEAD")
    asked = Request(method="HEAD", path="/x")
    assert cost(Cost(endpoints=(get,)), asked) == 5
    assert cost(Cost(endpoints=(get, head)), asked) == 5
    assert cost(Cost(endpoints=(head, get)), asked) == 3
    assert cost(Cost(endpoints=(head,)), Request(path="/x")) == 1


def test_a_path_that_can_be_read_as_a_cheaper_one_costs_the_dearer() -> None:
    assert cost(BY_ENDPOINT, Request(method="POST", path="/free/../export/pdf")) == 10
    assert cost(BY_ENDPOINT, Request(method="POST", path="/export/pdf/../../free")) == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("007", 7),
        ("0", 0),
        ("100", 100),
        ("101", 100),
        ("9" * 5000, 100),
        ("", 3),
        ("-1", 3),
        ("+1", 3),
        ("1.0", 3),
        ("1e2", 3),
        ("1_0", 3),
        ("٣", 3),
        ("5, 6", 3),
        ("many", 3),
    ],
)
def test_a_header_says_the_cost_if_it_is_a_whole_number(value: str, expected: int) -> None:
    by_header = Cost(default=3, header="x-cost", least=0, most=100)
    assert cost(by_header, Request(headers=(("X-Cost", value),))) == expected


def test_a_header_with_0_is_free_only_if_the_rule_says_so() -> None:
    zero = Request(headers=(("x-cost", "0"),))
    assert cost(Cost(header="x-cost", most=100), zero) == 1
    assert cost(Cost(header="x-cost", least=0, most=100), zero) == 0
    assert cost(Cost(header="x-cost", least=5, most=100), zero) == 5
    assert cost(Cost(header="x-cost", least=5, most=100), Request()) == 1


def test_a_header_that_is_missing_or_there_twice_does_not_count() -> None:
    by_header = Cost(default=3, header="x-cost", most=100)
    assert cost(by_header, Request()) == 3
    assert cost(by_header, Request(headers=(("x-cost", "1"), ("x-cost", "1")))) == 3


def test_without_a_bound_a_number_beyond_what_stores_count_does_not_count() -> None:
    unbounded = Cost(default=3, header="x-cost")
    assert cost(unbounded, Request(headers=(("x-cost", str(2**53 - 1)),))) == 2**53 - 1
    assert cost(unbounded, Request(headers=(("x-cost", str(2**53)),))) == 3
    assert cost(unbounded, Request(headers=(("x-cost", "9" * 5000),))) == 3


def test_without_the_header_the_endpoint_says_the_cost() -> None:
    both = Cost(default=2, header="x-cost", most=9, endpoints=(EndpointCost("/export", 5),))
    assert cost(both, Request(path="/export")) == 5
    assert cost(both, Request(path="/export", headers=(("x-cost", "junk"),))) == 5
    assert cost(both, Request(path="/export", headers=(("x-cost", "3"),))) == 3


@pytest.mark.parametrize(
    ("after", "amount", "cost"),
    [
        (After(), 0, 0),
        (After(), 812, 812),
        (After(per=1000), 0, 0),
        (After(per=1000), 1, 1),
        (After(per=1000), 1000, 1),
        (After(per=1000), 1001, 2),
        (After(most=5), 4, 4),
        (After(most=5), 6, 5),
        (After(per=10, most=5), 41, 5),
        (After(per=10, most=5), 51, 5),
    ],
)
def test_afterwards_every_part_that_is_begun_costs_one_up_to_the_most(
    after: After, amount: int, cost: int
) -> None:
    assert cost_after(after, amount) == cost


@pytest.mark.parametrize(
    ("lines", "cost"),
    [
        (["812"], 82),
        ([" 0812 "], 82),
        (["0"], 0),
        ([], None),
        ([""], None),
        (["8", "8"], None),
        (["8, 8"], None),
        (["-8"], None),
        (["+8"], None),
        (["8.0"], None),
        (["٨"], None),
        ([str(2**53 - 1)], (2**53 + 8) // 10),
        ([str(2**53)], None),
        (["9" * 5000], None),
    ],
)
def test_a_response_says_what_it_cost_in_one_whole_number(
    lines: list[str], cost: int | None
) -> None:
    assert cost_in_response(After("x", per=10), lines) == cost


@pytest.mark.parametrize("number", ["2000", str(2**53), "9" * 5000])
def test_what_is_beyond_the_most_is_the_most(number: str) -> None:
    assert cost_in_response(After("x", per=10, most=7), [number]) == 7
