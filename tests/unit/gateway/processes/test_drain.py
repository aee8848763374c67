"""How Envoy is brought to its end."""

from __future__ import annotations

import asyncio

import pytest

from headgate.gateway.processes.envoy import AdminError, drain
from tests.support.envoy_admin import FakeAdmin

QUIET = {"http.gateway.downstream_rq_active": 0, "http.admin.downstream_rq_active": 1}
BUSY = {**QUIET, "http.gateway.downstream_rq_active": 2}


def _drain(admin: FakeAdmin, grace: float = 60.0) -> bool:
    return asyncio.run(drain(admin, linger=0.0, grace=grace))


def test_it_is_over_when_nothing_is_under_way() -> None:
    admin = FakeAdmin(BUSY, BUSY, QUIET)
    assert _drain(admin)
    assert admin.posted == ["/healthcheck/fail", "/drain_listeners"]


def test_a_request_between_two_looks_counts() -> None:
    admin = FakeAdmin(QUIET, BUSY, QUIET)
    assert _drain(admin)
    assert sum(admin.asked.values()) == 4


def test_what_takes_too_long_is_not_waited_for() -> None:
    assert not _drain(FakeAdmin(BUSY), grace=0.0)


def test_a_connection_may_be_about_to_bring_a_request() -> None:
    kept = {**QUIET, "http.gateway.downstream_cx_active": 1}
    admin = FakeAdmin(kept, kept, kept, kept, BUSY, QUIET)
    assert _drain(admin)
    assert sum(admin.asked.values()) == 7
    assert _drain(FakeAdmin(kept))  # but not for ever


def test_an_envoy_that_does_not_answer_cannot_drain() -> None:
    with pytest.raises(AdminError):
        _drain(FakeAdmin(None))
