"""Whether Envoy has taken up its files, by its counters."""

from __future__ import annotations

import asyncio

from headgate.gateway.processes.envoy import Acceptance
from tests.support.envoy_admin import FakeAdmin

LDS = "listener_manager.lds"
FILTER = "extension_config_discovery.http_filter.exact"


def _refused(admin: FakeAdmin, replaced: int, timeout: float = 60.0) -> tuple[str, ...]:
    async def ask() -> tuple[str, ...]:
        acceptance = Acceptance(admin, timeout=timeout)
        return await acceptance.rejected(await acceptance.counts(), replaced)

    return asyncio.run(ask())


def test_it_is_asked_until_it_has_taken_as_many_files_as_were_replaced() -> None:
    before = {f"{LDS}.update_success": 1, f"{FILTER}.update_success": 1}
    half = {**before, f"{FILTER}.update_success": 2}
    admin = FakeAdmin(before, before, half, {**half, f"{LDS}.update_success": 2})
    assert _refused(admin, 2) == ()
    assert sum(admin.asked.values()) == 4


def test_what_it_refuses_is_named() -> None:
    before = {f"{LDS}.update_rejected": 1, f"{FILTER}.config_fail": 0}
    after = {f"{LDS}.update_rejected": 1, f"{FILTER}.config_fail": 1}
    assert _refused(FakeAdmin(before, before, after), 1) == (FILTER,)


def test_a_change_that_is_none_to_envoy_is_not_waited_for_for_ever() -> None:
    assert _refused(FakeAdmin({f"{LDS}.update_success": 1}), 1, timeout=0.0) == ()


def test_an_envoy_that_is_about_to_start_again_refuses_nothing() -> None:
    assert _refused(FakeAdmin(None), 1, timeout=0.0) == ()
