"""The contract of limits: keys, costs, limits by request, routes, exemptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.testing.capabilities import needs
from headgate.testing.integration_contract.app import Route
from headgate.testing.integration_contract.subject import IntegrationUnderTest, remaining

if TYPE_CHECKING:
    from headgate.testing.integration_contract.app import HasHeaders

_BY_ENDPOINT = {
    "version": 1,
    "rules": [{"id": "a", "key_by": ["ip", "endpoint"], "limit": "2/hour"}],
}
_ON_ITEMS = {
    "version": 1,
    "rules": [
        {"id": "a", "match": {"endpoint": "/v1/items/**"}, "key_by": "ip", "limit": "1/hour"}
    ],
}


def _user(request: HasHeaders) -> str | None:
    return request.header("x-user")


def _cost(request: HasHeaders) -> int:
    return int(request.header("x-cost") or 1)


def _limits(request: HasHeaders) -> str | None:
    plan = request.header("x-plan")
    return None if plan == "unlimited" else "3/hour" if plan == "paid" else "1/hour"


def _is_staff(request: HasHeaders) -> bool:
    return request.header("x-user") == "staff"


class AppLimitContract(IntegrationUnderTest):
    """Limits of a whole app."""

    def test_a_key_function_says_which_requests_share_a_counter(self) -> None:
        self.start(limits="1/hour", key=_user)
        assert self.statuses(2, x_user="ada") == [200, 429]
        assert self.statuses(2, x_user="bob") == [200, 429]

    def test_a_request_without_a_key_is_counted_by_client_ip(self) -> None:
        self.start(limits="1/hour", key=_user)
        assert self.statuses(2) == [200, 429]
        assert self.ask(x_user="").status == 429

    def test_a_denied_cost_consumes_nothing(self) -> None:
        self.start(limits="10/hour", cost=_cost)
        assert [self.ask(x_cost=cost).status for cost in ("6", "6", "4")] == [200, 429, 200]

    def test_a_cost_that_never_fits_is_denied_without_a_time_to_retry(self) -> None:
        self.start(limits="10/hour", cost=11)
        denial = self.ask()
        assert denial.status == 429
        assert "retry-after" not in denial.headers

    def test_limits_may_depend_on_the_request_and_none_is_no_limit(self) -> None:
        self.start(limits=_limits, key=_user)
        assert self.statuses(2, x_user="a", x_plan="free") == [200, 429]
        assert self.statuses(4, x_user="b", x_plan="paid") == [200, 200, 200, 429]
        assert self.statuses(3, x_user="c", x_plan="unlimited") == [200, 200, 200]

    def test_stacked_limits_are_all_or_nothing(self) -> None:
        self.start(limits="3/hour fixed_window; 1/minute fixed_window", name="api")
        assert self.statuses(3) == [200, 429, 429]
        self.clock.advance(60)
        assert self.ask().headers["x-ratelimit-limit"] == "1"
        self.clock.advance(60)
        assert self.statuses(1) == [200]
        self.clock.advance(60)
        assert self.statuses(1) == [429]

    def test_exempt_paths_are_not_counted_and_have_no_headers(self) -> None:
        self.start(Route(), Route(path="/health"), limits="1/hour", exempt=["/health"])
        free = [self.ask("/health") for _ in range(3)]
        assert [one.status for one in free] == [200, 200, 200]
        assert not any("ratelimit" in one.headers for one in free)
        assert self.statuses(2) == [200, 429]

    def test_exempt_when_exempts_by_request(self) -> None:
        self.start(limits="1/hour", exempt_when=_is_staff)
        assert self.statuses(3, x_user="staff") == [200, 200, 200]
        assert self.statuses(2) == [200, 429]

    def test_a_mounted_app_does_not_escape_the_limit(self) -> None:
        self.start(Route(), Route(path="/items", mount="/v1"), limits="2/hour")
        assert self.ask("/v1/items").status == 200
        assert self.ask().status == 200
        assert self.ask("/v1/items").status == 429

    def test_a_rule_matches_the_whole_path_of_a_mounted_app(self) -> None:
        self.start(Route(), Route(path="/items/{item}", mount="/v1"), policy=_ON_ITEMS)
        assert self.statuses(2, "/v1/items/7") == [200, 429]
        assert self.statuses(2) == [200, 200]

    @needs("knows_templates")
    def test_paths_of_one_route_template_are_one_endpoint(self) -> None:
        self.start(Route(path="/items/{item}"), Route(path="/other"), policy=_BY_ENDPOINT)
        assert [self.ask(f"/items/{n}").status for n in range(3)] == [200, 200, 429]
        assert self.ask("/other").status == 200

    @needs("knows_templates")
    def test_the_template_of_a_mounted_route_is_the_whole_one(self) -> None:
        mounted = Route(path="/items/{item}", mount="/v1")
        self.start(mounted, Route(path="/items/{item}"), policy=_BY_ENDPOINT)
        assert [self.ask(f"/v1/items/{n}").status for n in range(3)] == [200, 200, 429]
        assert self.ask("/items/1").status == 200


@needs("has_route_limits")
class RouteLimitContract(IntegrationUnderTest):
    """Limits of single routes."""

    def test_routes_without_a_shared_name_are_counted_apart(self) -> None:
        own = {"limits": "1/hour"}
        self.start(Route(path="/a", limit=own), Route(path="/b", limit=own), Route(path="/c"))
        assert self.statuses(2, "/a") == [200, 429]
        assert self.statuses(2, "/b") == [200, 429]
        assert self.statuses(2, "/c") == [200, 200]

    def test_routes_with_one_name_share_a_limit(self) -> None:
        shared = {"limits": "2/hour", "name": "shared"}
        self.start(Route(path="/a", limit=shared), Route(path="/b", limit=shared))
        assert [self.ask(path).status for path in ("/a", "/b", "/a")] == [200, 200, 429]

    def test_all_paths_of_a_route_share_its_limit(self) -> None:
        self.start(Route(path="/items/{item}", limit={"limits": "1/hour"}))
        assert [self.ask(f"/items/{n}").status for n in range(2)] == [200, 429]

    @needs("has_app_limits")
    def test_the_response_has_the_figures_of_the_app_and_of_the_route(self) -> None:
        own = {"limits": "5/hour", "name": "route"}
        self.start(Route(limit=own), limits="9/hour", name="app")
        assert self.left() == {"app": 8, "route": 4}

    @needs("has_app_limits")
    def test_a_denial_of_the_route_refunds_what_the_app_charged(self) -> None:
        own = {"limits": "1/hour", "name": "route"}
        self.start(Route(path="/a", limit=own), Route(path="/b"), limits="9/hour", name="app")
        assert self.statuses(3, "/a") == [200, 429, 429]
        assert self.left("/b") == {"app": 7}

    @needs("has_app_limits")
    def test_a_denial_of_the_app_does_not_charge_the_route(self) -> None:
        own = {"limits": "2/hour fixed_window", "name": "route"}
        self.start(Route(limit=own), limits="1/minute fixed_window", name="app")
        assert self.statuses(3) == [200, 429, 429]
        self.clock.advance(60)
        assert self.left() == {"app": 0, "route": 0}

    def test_a_denial_of_a_route_has_retry_after_and_the_figures(self) -> None:
        self.start(Route(limit={"limits": "1/hour", "name": "route"}))
        self.ask()
        denial = self.ask()
        assert denial.status == 429
        assert int(denial.headers["retry-after"]) >= 1
        assert remaining(denial) == {"route": 0}

    def test_limits_keys_and_costs_of_a_route_may_depend_on_the_request(self) -> None:
        own = {"limits": _limits, "key": _user, "cost": _cost, "name": "route"}
        self.start(Route(limit=own))
        assert self.statuses(2, x_user="a") == [200, 429]
        paid = {"x_user": "b", "x_plan": "paid"}
        assert [self.ask(x_cost=cost, **paid).status for cost in ("2", "2", "1")] == [200, 429, 200]
        assert self.statuses(3, x_user="c", x_plan="unlimited") == [200, 200, 200]

    def test_exempt_when_exempts_from_the_limit_of_a_route(self) -> None:
        self.start(Route(limit={"limits": "1/hour", "exempt_when": _is_staff}))
        assert self.statuses(3, x_user="staff") == [200, 200, 200]
        assert self.statuses(2) == [200, 429]

    def test_a_route_limit_in_shadow_mode_denies_nothing(self) -> None:
        self.start(Route(limit={"limits": "1/hour", "mode": "shadow"}))
        assert self.statuses(3) == [200, 200, 200]

    @needs("has_app_limits")
    def test_an_exempt_route_skips_the_limits_of_the_app_and_keeps_its_own(self) -> None:
        self.start(
            Route(path="/free", is_exempt=True),
            Route(path="/own", is_exempt=True, limit={"limits": "2/hour", "name": "route"}),
            Route(path="/app"),
            limits="1/hour",
            name="app",
        )
        assert self.statuses(3, "/free") == [200, 200, 200]
        assert "ratelimit-policy" not in self.ask("/free").headers
        assert self.left("/own") == {"route": 1}
        assert self.statuses(2, "/own") == [200, 429]
        assert self.statuses(2, "/app") == [200, 429]

    def test_a_route_of_a_mounted_app_has_its_limit(self) -> None:
        own = {"limits": "1/hour"}
        self.start(Route(path="/items", mount="/v1", limit=own), Route(path="/items", limit=own))
        assert self.statuses(2, "/v1/items") == [200, 429]
        assert self.statuses(2, "/items") == [200, 429]

    @needs("answers_http_errors")
    def test_an_error_of_the_framework_in_a_limited_route_has_headers(self) -> None:
        self.start(Route(behaviour="raises", limit={"limits": "2/hour", "name": "route"}))
        assert self.left() == {"route": 1}
