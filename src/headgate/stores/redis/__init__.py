"""Counters in Redis or Valkey, exact for a whole fleet, in one round trip.

A check goes from `store` through `batching` and a transport to a script in `lua`.
Read `store` first, then `requests` and `codec`.
"""

from headgate.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
