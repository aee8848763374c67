"""The document says what there is."""

from __future__ import annotations

from typing import Any

from headgate.service.admin.app import PREFIX
from headgate.service.admin.openapi import SECURITY_SCHEME, SECURITY_SCHEMES, admin_paths
from tests.support.admin_api import Desk, attended


def test_all_paths_and_methods_are_in_it_and_no_others() -> None:
    async def body(desk: Desk) -> None:
        routes = desk.app._routes
        there = {
            (f"{PREFIX}{path}", method.lower())
            for path, methods in routes.table.items()
            for method in methods
        }
        told = {
            (path, method)
            for path, item in admin_paths().items()
            for method in item
            if method != "parameters"
        }
        assert told == there

    attended(body)


def test_every_operation_can_name_the_scheme_that_it_needs() -> None:
    for item in admin_paths(security=SECURITY_SCHEME).values():
        for method, operation in item.items():
            if method != "parameters":
                assert operation["security"] == [{SECURITY_SCHEME: []}]
    assert SECURITY_SCHEMES[SECURITY_SCHEME]["scheme"] == "bearer"


def test_parameters_of_a_path_are_declared() -> None:
    for path, item in admin_paths().items():
        named: list[Any] = [one["name"] for one in item.get("parameters", ())]
        assert all(f"{{{name}}}" in path for name in named)
        assert path.count("{") == len(named)


def test_every_write_says_that_it_goes_by_versions() -> None:
    async def body(desk: Desk) -> None:
        for path, methods in desk.app._routes.table.items():
            for method, route in methods.items():
                told = admin_paths()[f"{PREFIX}{path}"][method.lower()].get("parameters", ())
                named = [one["name"] for one in told]
                changes_rules = route.role == "write" and path != "/debug-tokens"
                assert ("If-Match" in named) == changes_rules, (method, path)

    attended(body)
