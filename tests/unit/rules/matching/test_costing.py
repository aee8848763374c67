from __future__ import annotations

import pytest

from headgate.rules.matching import cost_of, normalised_path
from headgate.rules.model import Cost, EndpointCost
from headgate.rules.request import Request

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
    by_header = Cost(default=3, header="x-cost", most=100)
    assert cost(by_header, Request(headers=(("X-Cost", value),))) == expected


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
