"""The document says what there is."""

from __future__ import annotations

from typing import Any

from headgate.service.admin.app import admin_paths
from headgate.service.admin.operations import SECURITY_SCHEME, SECURITY_SCHEMES
from tests.support.admin_api import READER, Desk, attended


def test_all_paths_and_methods_are_in_it_and_no_others() -> None:
    async def body(desk: Desk) -> None:
        for path, item in admin_paths().items():
            told = path.replace("{rule_id}", "nothing").replace("{number}", "9")
            answer = await desk.call(f"PATCH {told.removeprefix('/admin/v1')}")
            assert answer.status_code == 405, path
            expected = {method.upper() for method in item if method != "parameters"}
            assert set(answer.headers["allow"].split(", ")) == expected
        assert (await desk.call("GET /nothing")).status_code == 404

    attended(body)


def test_every_operation_names_the_scheme_that_it_needs() -> None:
    for item in admin_paths().values():
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
        desk.token = READER
        for path, item in admin_paths().items():
            told = path.replace("{rule_id}", "nothing").replace("{number}", "9")
            for method, operation in item.items():
                if method == "parameters":
                    continue
                line = f"{method.upper()} {told.removeprefix('/admin/v1')}"
                is_write = (await desk.call(line)).status_code == 403
                named = [one["name"] for one in operation.get("parameters", ())]
                changes_rules = is_write and not path.endswith("/debug-tokens")
                assert ("If-Match" in named) == changes_rules, line

    attended(body)
