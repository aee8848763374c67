"""`headgate serve` with two workers when Redis dies, hangs and comes back: every way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.test_serve_grpc import OK, OVER, RLS, STUBS, channel_to
from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import grpc

RULES = """\
version: 1
rules:
  - {id: open, match: {endpoint: /open}, key_by: global, limit: 1000/hour}
  - {id: shut, match: {endpoint: /shut}, key_by: global, limit: 1000/hour,
     on_store_failure: fail_closed}
  - {id: here, match: {endpoint: /here}, key_by: global, limit: 8/hour,
     on_store_failure: {mode: local, share: 50%}}
  - {id: brief, match: {endpoint: /brief}, key_by: global, limit: 1000/hour,
     on_store_failure: {mode: fail_open, max_fail_open: 200ms, then: fail_closed}}
  - {id: rls, match: {attributes: {domain: open}}, key_by: "attribute:user", limit: 1000/hour}
  - {id: rls-shut, match: {attributes: {domain: shut}}, key_by: "attribute:user",
     limit: 1000/hour, on_store_failure: fail_closed}
"""


def statuses(service: Service, path: str) -> set[int]:
    """What both ways over HTTP say to some requests for *path*, by either worker."""
    authorize = f"{service.url}/v1/authorize{path}"
    checked = [service.check(path=path).status_code for _ in range(4)]
    return {*checked, *(PLAIN.get(authorize).status_code for _ in range(4))}


def code(channel: grpc.Channel, domain: str) -> int:
    request = RLS.RateLimitRequest(domain=domain)
    request.descriptors.add().entries.add(key="user", value="ada")
    answer = STUBS.RateLimitServiceStub(channel).ShouldRateLimit(request, timeout=10)
    return int(answer.overall_code)


def measured(service: Service, name: str) -> float:
    """The sum of *name* over its labels, of both workers."""
    lines = PLAIN.get(f"{service.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def decides_without_store(service: Service, channel: grpc.Channel) -> None:
    """Every rule does what it says for that."""
    wait_until(lambda: statuses(service, "/shut") == {503}, "both workers notice the outage")
    assert statuses(service, "/open") == {200}
    wait_until(lambda: statuses(service, "/brief") == {503}, "it has failed open for long enough")
    assert [code(channel, domain) for domain in ("open", "shut")] == [OK, OVER]


def decides_with_store(service: Service, channel: grpc.Channel) -> None:
    """Each of many requests is decided by the store."""

    def is_back() -> bool:
        found = statuses(service, "/shut") | statuses(service, "/brief")
        assert found <= {200, 503}
        return found == {200} and code(channel, "shut") == OK

    wait_until(is_back, "the store decides again", within=30)


def test_an_outage_from_beginning_to_end(tmp_path: Path) -> None:
    with RedisServer() as redis:
        flags = ("--workers", "2", "--store", redis.bare_url)
        with (
            serving(tmp_path, *flags, rules=RULES, grpc=1) as service,
            channel_to(service) as channel,
        ):
            decides_with_store(service, channel)
            redis.kill()
            decides_without_store(service, channel)
            shared: list[int] = []

            def has_all() -> bool:
                shared.append(service.check(path="/here").status_code)
                return shared.count(200) == 8

            wait_until(has_all, "both workers have given their half of the limit")
            assert set(shared) <= {200, 429}
            assert {service.check(path="/here").status_code for _ in range(8)} == {429}
            wait_until(
                lambda: measured(service, "headgate_decisions_without_store_total") > 0,
                "it is told how much is decided without the store",
            )
            wait_until(
                lambda: measured(service, "headgate_fail_mode_active") in (1, 2),
                "it is told which workers do",
            )
            redis.start()
            decides_with_store(service, channel)
            redis.pause()
            decides_without_store(service, channel)
            redis.resume()
            decides_with_store(service, channel)
            wait_until(
                lambda: measured(service, "headgate_fail_mode_active") == 0,
                "both workers have ended their outage",
            )
            told = service.log
            assert "Traceback" not in told
            lines = [line for line in told.splitlines() if "the store" in line]
            assert len(lines) < 80, told
