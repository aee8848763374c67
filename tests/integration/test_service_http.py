"""The HTTP API on a real server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import httpx

from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.http import HttpApp
from tests.support.gateways import service
from tests.support.servers import RedisServer, wait_until
from tests.support.uvicorn_apps import wire

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = "POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"


def test_checks_reservations_and_pages_over_a_connection() -> None:
    with service() as url, httpx.Client(base_url=url) as client:
        body = {"method": "POST", "path": "/login", "ip": "203.0.113.7"}
        statuses = [client.post("/v1/check", json=body).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        key = {"path": "/api/x", "headers": {"X-Api-Key": "k"}, "cost": 2}
        made = client.post("/v1/reservations", json=key)
        assert made.status_code == 201
        settled = client.post(f"{made.headers['location']}/commit", json={"cost": 1})
        assert settled.json() == {"charged": {"per-key": 1}}
        assert client.delete(made.headers["location"]).status_code == 409
        page = client.get("/v1/rate_limit", headers={"x-api-key": "k"}).json()
        assert {one["name"]: one.get("remaining") for one in page["limits"]}["per-key"] == 1
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.head("/v1/authorize/x").status_code == 200


def test_the_path_reaches_the_rules_as_it_was_sent() -> None:
    with service() as url, httpx.Client(base_url=url) as client:
        for n, path in enumerate((b"/%6cogin", b"/a/..%2flogin", b"//login", b"/login;x?y")):
            asked = client.build_request("POST", "/")
            asked.url = asked.url.copy_with(raw_path=b"/v1/authorize" + path)
            assert client.send(asked).status_code == (200 if n < 2 else 429), path


def test_what_is_wrong_with_a_request_is_answered_and_the_server_goes_on() -> None:
    async def main(url: str) -> None:
        async with wire(url) as line:
            await line.say(BEGIN)
            await line.say("content-length: 70000\r\n\r\n")
            assert "413" in await line.hear("\r\n")
        async with wire(url) as line:
            await line.say(BEGIN)
            await line.say("transfer-encoding: chunked\r\n\r\n")
            await line.say_chunk('{"path":')
            await line.say_chunk(' "/login"}')
            await line.say("0\r\n\r\n")
            assert "200" in await line.hear("\r\n")
        async with wire(url) as line:
            await line.say(BEGIN)
            await line.say('content-length: 100\r\n\r\n{"path":')
            assert "408" in await line.hear("\r\n")
            assert "connection: close" in (await line.hear("\r\n\r\n")).lower()
        async with wire(url) as line:
            await line.say(BEGIN)
            await line.say('content-length: 100\r\n\r\n{"path":')  # and gone

    with service(receive=0.2) as url:
        asyncio.run(main(url))
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_gateway_that_hangs_up_while_it_is_kept_waiting_gives_its_turn_to_the_next() -> None:
    policy = "version: 1\nrules: [{id: exports, key_by: global, shape: {rate: 1/m, queue: 1}}]\n"
    asked = "GET /v1/authorize/a HTTP/1.1\r\nhost: h\r\n\r\n"

    async def main(url: str) -> None:
        async with wire(url) as line:
            await line.say(asked)
            assert "200" in await line.hear("\r\n")
        async with wire(url) as line:
            await line.say(asked)
            await until(url, remaining=0)
        await until(url, remaining=1)

    async def until(url: str, *, remaining: int) -> None:
        def is_so() -> bool:
            (shown,) = httpx.get(f"{url}/v1/rate_limit").json()["limits"]
            return bool(shown["remaining"] == remaining)

        await asyncio.to_thread(wait_until, is_so, f"{remaining} are left")

    with service(policy) as url:
        asyncio.run(main(url))


def test_a_unix_socket_is_a_gateway(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    transport = httpx.HTTPTransport(uds=str(path))
    trail = {"x-forwarded-for": "203.0.113.7"}
    with service(socket=path) as url, httpx.Client(transport=transport, base_url=url) as client:
        statuses = [client.post("/v1/authorize/login", headers=trail) for _ in range(3)]
    assert [one.status_code for one in statuses] == [200, 200, 429]


def test_a_reservation_is_settled_once_in_a_fleet_that_shares_redis() -> None:
    policy = read_policy(
        "version: 1\nrules:\n"
        "  - {id: tokens, key_by: api_key, limit: 100/day}\n"
        "  - {id: slots, key_by: api_key, algorithm: concurrency, limit: 1, ttl: 60}\n"
    )
    asked = {"path": "/", "headers": {"x-api-key": "k"}}

    async def main(store: str) -> None:
        engines = [AsyncRuleEngine(policy, store=store, salt=b"salt") for _ in range(2)]
        apps = [
            HttpApp(Core(rules=engine, clock=time.time_ns, secret=b"shared")) for engine in engines
        ]
        here, there = (
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h")
            for app in apps
        )
        async with here, there:
            held = {**asked, "cost": {"tokens": 40}}
            made = await here.post("/v1/reservations", json=held)
            assert made.status_code == 201
            assert (await there.post("/v1/reservations", json=held)).status_code == 429  # the slot
            place = made.headers["location"]
            ends = [client.post(f"{place}/commit", json={"cost": 15}) for client in (here, there)]
            statuses = sorted(one.status_code for one in await asyncio.gather(*ends))
            assert statuses == [200, 409]
            made = await there.post("/v1/reservations", json={**held, "ttl": 0.05})
            assert made.status_code == 201
            await asyncio.sleep(0.2)
            lapsed = await here.post(f"{made.headers['location']}/commit", json={"cost": 40})
            assert lapsed.status_code == 410
            page = (await here.post("/v1/rate_limit", json=asked)).json()["limits"]
            assert {one["name"]: one["remaining"] for one in page} == {"tokens": 85, "slots": 1}
        for engine in engines:
            await engine.aclose()

    with RedisServer() as server:
        asyncio.run(main(server.url))


def test_many_at_once_are_admitted_exactly() -> None:
    policy = "version: 1\nrules: [{id: all, key_by: global, limit: 50/day}]"

    async def main(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url) as client:
            body = json.dumps({"path": "/"})
            kind = {"content-type": "application/json"}
            asked = [client.post("/v1/check", content=body, headers=kind) for _ in range(100)]
            return [one.status_code for one in await asyncio.gather(*asked)]

    with service(policy) as url:
        statuses = asyncio.run(main(url))
    assert statuses.count(200) == 50
    assert statuses.count(429) == 50
