"""Gates of a fleet that share one rate over a real Redis."""

from __future__ import annotations

import asyncio
import time

from headgate.overload import AsyncFairGate, FleetRate
from tests.support.servers import RedisServer

PER_SECOND = 200
EACH = 10


def test_two_gates_share_a_rate_over_redis() -> None:
    async def visit(gate: AsyncFairGate, tenant: str, served: list[str]) -> None:
        async with gate.place(tenant, timeout=30) as place:
            assert place
            served.append(tenant)

    async def main(url: str) -> tuple[list[str], float]:
        rates = [FleetRate(f"{PER_SECOND}/s", store=url, key="shared") for _ in range(2)]
        gates = [AsyncFairGate(rate=rate, weights={"heavy": 3}) for rate in rates]
        served = list[str]()
        tenants = ["light"] * EACH + ["heavy"] * EACH
        began = time.monotonic()
        await asyncio.gather(*(visit(gate, one, served) for gate in gates for one in tenants))
        took = time.monotonic() - began
        for gate in gates:
            await gate.aclose()
        return served, took

    with RedisServer() as server:
        served, took = asyncio.run(main(server.url))
    assert len(served) == 4 * EACH
    assert took >= (len(served) - 1) / PER_SECOND  # no earlier, however slow this machine is
    assert served[: 2 * EACH].count("heavy") > served[: 2 * EACH].count("light")
