"""What is in a Redis database: keys, values and times to live, read by plain commands."""

import re
import time
from typing import Any

import redis

TICK_MS = 100
"""Times to live in histories are multiples of this, or at most `SLACK_MS` above, so that they can
be told exactly though the clock of the server goes on."""

SLACK_MS = 2

_NAME = re.compile(r"(?<![0-9a-f])[0-9a-f]{24}(?![0-9a-f])")
"""A random name of a reservation or a lease."""


class SlowError(Exception):
    """A step took so long that times to live cannot be told exactly; try the history again."""


class RedisState:
    """The database at *url*, and what changed in it since it was last looked at."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url.partition("?")[0])
        self._names: dict[str, str] = {}
        self.empty()

    def empty(self) -> None:
        """Begin with no keys."""
        self._client.flushdb()
        self._seen: dict[bytes, tuple[Any, int]] = {}
        self._names.clear()
        self._began_ms = self._now_ms()

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def changes(self) -> dict[str, Any]:
        """What the last step has written and removed. Raises `SlowError`."""
        ended_ms = self._now_ms()
        found = self._all()
        written = {
            self._shown(key): {
                "type": kind,
                "value": value,
                "ttl_ms": self._ttl(key, ends_ms, ended_ms),
            }
            for key, ((kind, value), ends_ms) in sorted(found.items())
            if self._seen.get(key) != ((kind, value), ends_ms)
        }
        removed = [self._shown(key) for key in sorted(self._seen.keys() - found.keys())]
        self._seen = found
        time.sleep(SLACK_MS / 1000)  # what is written next ends in another millisecond
        self._began_ms = self._now_ms()
        return {"written": written, "removed": removed}

    def values(self) -> dict[str, Any]:
        """The type and the value of each key."""
        found = self._all()
        return {self._shown(key): list(value) for key, (value, _) in sorted(found.items())}

    def kinds(self) -> dict[str, tuple[str, int]]:
        """The type of each key, and how many milliseconds it has left."""
        keys = sorted(self._client.keys())
        kinds = {key: self._client.type(key).decode() for key in keys}
        return {self._shown(key): (kind, self._client.pttl(key)) for key, kind in kinds.items()}

    def _ttl(self, key: bytes, ends_ms: int, ended_ms: int) -> int | str:
        """The time to live that was set between the last look and *ended_ms*."""
        if ends_ms < 0:
            return "none"
        if key in self._seen and self._seen[key][1] == ends_ms:
            return "unchanged"
        if ended_ms - self._began_ms >= TICK_MS:
            raise SlowError
        found = (ends_ms - self._began_ms) // TICK_MS * TICK_MS
        least = ends_ms - ended_ms - SLACK_MS
        assert found >= least, f"a time to live of at least {least} ms is no multiple of {TICK_MS}"
        return found

    def _all(self) -> dict[bytes, tuple[Any, int]]:
        keys = list(self._client.scan_iter(count=1000))
        ends = {key: int(self._client.execute_command("PEXPIRETIME", key)) for key in keys}
        return {key: (self._value(key), ends[key]) for key in sorted(keys)}

    def _value(self, key: bytes) -> tuple[str, Any]:
        kind = self._client.type(key).decode()
        read: Any = {
            "string": lambda: self._shown(self._client.get(key)),
            "list": lambda: [self._shown(one) for one in self._client.lrange(key, 0, -1)],
            "zset": lambda: sorted(  # the order of random names is none
                f"{score:.0f} {self._shown(member)}"
                for member, score in self._client.zrange(key, 0, -1, withscores=True)
            ),
            "hash": lambda: {
                self._shown(name): self._shown(value)
                for name, value in sorted(self._client.hgetall(key).items())
            },
        }
        return kind, read[kind]()

    def _shown(self, text: Any) -> str:
        """*text* in ASCII, random names numbered as they come."""
        plain = text.decode("latin-1").encode("unicode_escape").decode()
        return _NAME.sub(self._name, plain)

    def _name(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[0], f"<name {len(self._names) + 1}>")

    def _now_ms(self) -> int:
        seconds, microseconds = self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000
