"""What a part of an app allows: checked when it is made, asked for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.errors import CostError, HeadgateError, LimitError, OptionError, UsageError
from headgate.integrations import RequestLimiter, RouteLimit
from headgate.integrations.route_limit import Names, named_limits
from headgate.limits import FixedWindow
from headgate.runtime.drivers import drive

if TYPE_CHECKING:
    from headgate.engine.plan import RulePlan


def asked(allowance: RouteLimit, native: str = "request", **options: Any) -> RulePlan | None:
    """What a limiter asks for *allowance* about *native*, the request of some framework."""
    limiter = RequestLimiter(**options)
    request = Request(peer="1.2.3.4")
    entry = drive(
        limiter.plan_route(named_limits((allowance,), "view", "/GET /view"), native, request)
    )
    return None if entry is None else entry.plan.rules[0]


def test_what_is_said_is_what_is_asked() -> None:
    limit = FixedWindow(5, 60)
    plan = asked(RouteLimit(limits=limit, key=lambda request: f"{request}er", cost=3, name="login"))

    assert plan is not None
    assert (plan.rule.id, plan.key, plan.cost) == ("login", "requester", 3)
    assert plan.limits == (limit,)
    assert plan.checks[0].group.endswith("@login")


def test_what_is_not_said_is_the_address_and_one_unit() -> None:
    plan = asked(RouteLimit(limits="5/minute; 9/hour"))

    assert plan is not None
    assert (plan.rule.id, plan.key, plan.cost) == ("view", "1.2.3.4", 1)
    assert [limit.quota for limit in plan.limits] == [5, 9]
    assert [check.group.partition("=")[2] for check in plan.checks] == [
        "headgate=/GET /view#0",
        "headgate=/GET /view#0#1",
    ]


def test_the_key_function_of_the_gate_is_for_routes_that_have_none() -> None:
    own = asked(RouteLimit(limits="5/hour"), key=lambda request: f"of {request.peer}")
    other = asked(RouteLimit(limits="5/hour", key=str.upper), key=lambda _: "limiter")

    assert own is not None
    assert other is not None
    assert (own.key, other.key) == ("of%201.2.3.4", "REQUEST")


def test_functions_are_asked_with_the_request_of_the_framework() -> None:
    plan = asked(
        RouteLimit(limits=lambda native: f"{len(native)}/hour", key=str.upper, cost=len), "abc"
    )

    assert plan is not None
    assert (plan.key, plan.cost, plan.limits[0].quota) == ("ABC", 3, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"limits": "5/hour", "mode": "off"},
        {"limits": "5/hour", "exempt_when": lambda _: True},
        {"limits": lambda _: None},
    ],
)
def test_who_is_exempt_is_not_asked_about(options: dict[str, Any]) -> None:
    assert asked(RouteLimit(**options)) is None


def test_nobody_is_counted_by_address() -> None:
    plan = asked(RouteLimit(limits="5/hour", key=lambda _: None))

    assert plan is not None
    assert plan.key == "!1.2.3.4"


def test_two_limits_of_one_name_in_one_check_are_a_clear_error() -> None:
    """They would have one counter, and only one of them would be kept."""
    limiter = RequestLimiter()
    both: tuple[RouteLimit, ...] = tuple(
        RouteLimit(limits=limits, name="login") for limits in ("5/hour", "1/s")
    )

    with pytest.raises(UsageError, match="two limits of one request are called 'login'"):
        drive(limiter.plan_route(named_limits(both, "", ""), "request", Request()))


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (LimitError, {"limits": []}),
        (LimitError, {"limits": "often"}),
        (LimitError, {"limits": 5}),
        (CostError, {"cost": -1}),
        (CostError, {"cost": True}),
        (CostError, {"cost": 1.5}),
        (OptionError, {"name": ""}),
        (OptionError, {"name": "a b"}),
        (OptionError, {"name": "a\r\nb"}),
        (OptionError, {"key": "user"}),
        (OptionError, {"exempt_when": True}),
        (OptionError, {"charge_when": 401}),
        (OptionError, {"mode": "on"}),
        (OptionError, {"on_store_failure": "open"}),
        (OptionError, {"headers": "no"}),
        (HeadgateError, {"ttl": 0}),
        (HeadgateError, {"ttl": -1}),
    ],
)
def test_wrong_options_are_clear_errors(error: type[Exception], options: dict[str, Any]) -> None:
    with pytest.raises(error, match=r"expected|must be"):
        RouteLimit(**{"limits": "5/hour", **options})


@pytest.mark.parametrize("option", ["limits", "key", "cost", "exempt_when"])
def test_async_functions_are_refused_where_the_app_is_not_async(option: str) -> None:
    async def function(request: Any) -> Any:
        return None

    options: dict[str, Any] = {"limits": "5/hour", option: function}
    allowance = RouteLimit(**options)

    with pytest.raises(UsageError, match=f"{option} is an async function"):
        allowance.check_blocking()


def test_an_allowance_of_plain_functions_is_for_all_apps() -> None:
    RouteLimit(limits="5/hour", key=lambda _: "a", cost=lambda _: 1).check_blocking()


def test_a_plan_has_the_counter_that_the_names_say() -> None:
    allowance = RouteLimit(limits="5/hour")
    plan = allowance.plan(Names("shown", "@counter"), "key", 1, allowance.fixed or (), "space")

    assert plan.rule.id == "shown"
    assert plan.checks[0].group.endswith("@counter")
    assert plan.checks[0].key == "key"
