"""A process that takes a slot, says so, and holds it until its standard input ends.

python slot_holding.py URL LIMIT TTL PARTITION HEARTBEAT
"""

from __future__ import annotations

import sys

from headgate import Concurrency, RateLimiter


def main() -> None:
    url, limit, ttl, partition, heartbeat = sys.argv[1:]
    slots = Concurrency(int(limit), float(ttl), (("gold", 1),))
    limiter = RateLimiter(
        slots, store=url, name="api", namespace="slots", on_store_failure="fail_closed"
    )
    with limiter.slot("key", partition or None, heartbeat=heartbeat == "yes") as slot:
        print("held" if slot else "refused", flush=True)
        sys.stdin.read()
        print("held" if slot else "lost", flush=True)


if __name__ == "__main__":
    main()
