"""What people who run envoyproxy/ratelimit look at: health, configuration, near-limit metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.observability import METRICS
from headgate.service.rls.http_endpoints import ratelimit_apps
from tests.support.rls_client import OK, OVER, Asker, desc

CONFIG = """
domain: near
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - {key: plan, value: free, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: open, rate_limit: {unlimited: true}}
"""


def get(asker: Asker, path: str, client: tuple[str, int] | None) -> tuple[int, str]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def main() -> None:
        await ratelimit_apps(asker.core)[path]({"client": client}, None, send)

    asyncio.run(main())
    return sent[0]["status"], sent[1]["body"].decode()


def test_the_health_check_follows_readiness() -> None:
    asker = Asker(envoy=CONFIG)
    assert get(asker, "/healthcheck", ("192.0.2.1", 1)) == (200, "OK")
    asker.core.not_ready = lambda: ("the service is shutting down",)
    assert get(asker, "/healthcheck", None) == (500, "the service is shutting down")


@pytest.mark.parametrize("client", [None, ("", 0), ("127.0.0.1", 5), ("::1", 5)])
def test_the_configuration_is_listed_as_envoyproxy_does(client: tuple[str, int] | None) -> None:
    status, text = get(Asker(envoy=CONFIG), "/rlconfig", client)
    assert status == 200
    assert text == (
        "near.user: unit=MINUTE requests_per_unit=10, shadow_mode: false, quota_mode: false\n"
        "near.user.plan_free: unit=HOUR requests_per_unit=3, shadow_mode: true, quota_mode: false\n"
        "near.open: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n"
    )


def test_the_configuration_is_not_shown_to_other_machines() -> None:
    status, body = get(Asker(envoy=CONFIG), "/rlconfig", ("192.0.2.1", 5))
    assert status == 403
    assert "near" not in body


def test_units_above_four_fifths_of_a_limit_are_counted() -> None:
    asker = Asker(envoy=CONFIG)

    def near() -> int:
        sample = 'headgate_near_limit_total{rule="near.user"} '
        lines = [line for line in METRICS.text().splitlines() if line.startswith(sample)]
        return int(lines[0].removeprefix(sample)) if lines else 0

    before = near()
    assert asker.code("near", desc("user=ada"), hits=7) == OK
    assert near() == before
    assert asker.code("near", desc("user=ada"), hits=2) == OK
    assert near() == before + 1
    assert asker.code("near", desc("user=ada")) == OK
    assert asker.code("near", desc("user=ada")) == OVER
    assert near() == before + 2
