"""A primary, its replica, and three Sentinels that watch them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from .instance import EXECUTABLE, Instance
from .ports import HOST
from .process import ServerError
from .server import RedisServer
from .waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "mymaster"
_QUORUM = 2


class Sentinel(Instance):
    """One Sentinel that watches *primary* and finds out the rest by itself."""

    def __init__(
        self, primary: RedisServer, *, down_after_ms: int, executable: str = EXECUTABLE
    ) -> None:
        super().__init__(executable=executable)
        self._call.append("--sentinel")
        self._primary = primary
        self._down_after_ms = down_after_ms

    def _configuration(self) -> Sequence[str]:
        password = self._primary.password
        return [
            f"port {self.port}",
            f"bind {HOST}",
            "protected-mode no",
            f"dir {self.directory}",
            f"sentinel monitor {NAME} {HOST} {self._primary.port} {_QUORUM}",
            f"sentinel down-after-milliseconds {NAME} {self._down_after_ms}",
            f"sentinel failover-timeout {NAME} 1500",
            *([f"sentinel auth-pass {NAME} {password}"] if password else []),
        ]

    def hurry(self) -> None:
        """Do every half second what takes Sentinels some seconds by default (Redis 7).

        Not more often: a server that was promoted is made a replica again by the Sentinels that
        have not heard of it within four publish periods. And a Sentinel that a busy machine has
        kept waiting goes on after a second, not after thirty (tilt).
        """
        periods = ("publish-period", "500", "info-period", "200", "tilt-period", "1000")
        self.cli("sentinel", "debug", *periods)

    def primary_port(self) -> int:
        """The port of the primary, as this Sentinel has it."""
        return int(self.cli("sentinel", "get-master-addr-by-name", NAME).split()[1])

    def begin_failover(self) -> None:
        """Begin to swap the roles; `ServerError` while the replica is not yet trusted."""
        self.cli("sentinel", "failover", NAME)

    def is_informed(self) -> bool:
        """Whether it knows a working primary, one replica and two other Sentinels."""
        lines = self.cli("sentinel", "master", NAME).splitlines()
        fields = dict(zip(lines[::2], lines[1::2], strict=True))
        known = (fields["flags"], fields["num-slaves"], fields["num-other-sentinels"])
        return known == ("master", "1", "2")


class SentinelSetup:
    """One primary, one replica and three Sentinels with a quorum of two.

    A primary that does not answer for *down_after_ms* milliseconds is down. *password* is that of
    the two servers; the Sentinels have none. *config* are more lines for the servers' redis.conf.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        config: Sequence[str] = (),
        down_after_ms: int = 500,
        executable: str = EXECUTABLE,
    ) -> None:
        lines = [*config, *([f"masterauth {password}"] if password else [])]
        first = RedisServer(password=password, config=lines, executable=executable)
        lines.append(f"replicaof {HOST} {first.port}")
        second = RedisServer(password=password, config=lines, executable=executable)
        self.servers = (first, second)
        self.sentinels = tuple(
            Sentinel(first, down_after_ms=down_after_ms, executable=executable) for _ in range(3)
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """redis+sentinel://host:port,host:port,host:port/mymaster/0"""
        places = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{self.servers[0].credentials}{places}/{NAME}/0"

    def start(self) -> None:
        """Start all five, and wait until the replica follows and the Sentinels agree."""
        for server in self.servers:
            server.start()
        self._wait_for_replica()
        for sentinel in self.sentinels:
            sentinel.start()
            sentinel.hurry()
        self.wait_until_ok()

    def stop(self) -> None:
        """End all five."""
        for instance in (*self.sentinels, *self.servers):
            instance.close()

    def primary(self) -> RedisServer:
        """The primary that at least two Sentinels name."""
        said = Counter(one.primary_port() for one in self.sentinels if one.is_answering)
        port, votes = said.most_common(1)[0]
        if votes < _QUORUM:
            raise ServerError(f"the Sentinels do not agree who is primary: {dict(said)}")
        return next(server for server in self.servers if server.port == port)

    def replica(self) -> RedisServer:
        """The one that is not the primary; it may be down."""
        first, second = self.servers
        return second if self.primary() is first else first

    def fail_over(self) -> RedisServer:
        """Kill the primary and wait for its successor, which is the result.

        `primary().kill()` does not wait. `restart()` of the dead one makes it a replica.
        """
        old = self.primary()
        old.kill()
        return self._successor(old)

    def switch_over(self) -> RedisServer:
        """Have the Sentinels swap the roles of two healthy servers; the result is the primary.

        The old primary lives on as a replica: it answers READONLY to a write.
        """
        old, new = self.primary(), self.replica()
        wait_until(lambda: self._promotes(new), f"{new} has replaced {old}", within=30.0)
        wait_until(lambda: old.info("replication")["role"] == "slave", f"{old} is a replica")
        self.wait_until_ok()
        return new

    def _promotes(self, new: RedisServer) -> bool:
        if self.primary() is not new:
            self.sentinels[0].begin_failover()
            # Now and then the Sentinels give up, after 1.5 s: then it is for another try.
            wait_until(lambda: self.primary() is new, f"{new} is elected", within=4.0)
        return True

    def wait_until_ok(self) -> None:
        """Wait until the replica follows the primary and every Sentinel knows all the others."""
        self._wait_for_replica()
        for sentinel in self.sentinels:
            wait_until(sentinel.is_informed, f"{sentinel} knows all the others")

    def _successor(self, old: RedisServer) -> RedisServer:
        new = next(server for server in self.servers if server is not old)
        wait_until(lambda: self.primary() is new, f"the Sentinels have elected {new}")
        wait_until(lambda: new.info("replication")["role"] == "master", f"{new} is a primary")
        return new

    def _wait_for_replica(self) -> None:
        def follows() -> bool:
            states = [server.info("replication") for server in self.servers]
            return any(state.get("master_link_status") == "up" for state in states)

        wait_until(follows, "the replica follows the primary")
