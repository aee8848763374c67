"""Counters in Redis or Valkey: the limit of a whole fleet, exact, in one round trip."""

from headgate.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
