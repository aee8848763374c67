"""A primary, its replica, and three Sentinels that watch them.

Sentinels act by themselves and look away for a while whenever roles change, so a test that leaves
the timing to them fails now and then. Two habits of theirs are behind it:

- They connect to a server that has just become the primary only a second (their ping period) after
  they last tried to reach the dead one, and count from the change. With a shorter time until a
  server counts as down, all three hold the new primary for dead at once, and if the old one has
  come back by then they make it primary again. That no time passes between the two failovers is no
  oversight: a change of the primary clears the record of the last one.
- A Sentinel that hears from a replica that it is a primary, and has not heard why within four
  publish periods, makes it a replica again; the one that leads a failover asks the replica once a
  second only whether it has been promoted.

So no Sentinel here ever finds a server down; a failover begins when the test says so, needs no
election, and while it goes on no Sentinel corrects a role.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tests.support.servers.instance import EXECUTABLE, Instance
from tests.support.servers.ports import HOST
from tests.support.servers.process import ServerError
from tests.support.servers.server import RedisServer
from tests.support.servers.urls import PATIENCE, with_options
from tests.support.servers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "mymaster"
_QUORUM = 2
_PERIODS = ("ping-period", "200", "info-period", "200", "tilt-period", "1000")
_CORRECTING = "200"
_PATIENT = "10000"


class Sentinel(Instance):
    """One Sentinel that watches *primary* and finds out the rest by itself."""

    def __init__(self, primary: RedisServer, *, executable: str = EXECUTABLE) -> None:
        super().__init__(executable=executable)
        self._call.append("--sentinel")
        self._primary = primary

    def _configuration(self) -> Sequence[str]:
        password = self._primary.password
        return [
            f"port {self.port}",
            f"bind {HOST}",
            "protected-mode no",
            f"dir {self.directory}",
            f"sentinel monitor {NAME} {HOST} {self._primary.port} {_QUORUM}",
            f"sentinel down-after-milliseconds {NAME} 3600000",
            f"sentinel failover-timeout {NAME} 10000",
            *([f"sentinel auth-pass {NAME} {password}"] if password else []),
        ]

    def hurry(self) -> None:
        """Do every fifth of a second what takes Sentinels some seconds by default."""
        self.cli("sentinel", "debug", *_PERIODS, "publish-period", _CORRECTING)

    def be_patient(self) -> None:
        """Correct no server's role, until `hurry`. News are published at once all the same."""
        self.cli("sentinel", "debug", "publish-period", _PATIENT)

    def primary_port(self) -> int:
        """The port of the primary, as this Sentinel has it."""
        return int(self.cli("sentinel", "get-master-addr-by-name", NAME).split()[1])

    def begin_failover(self) -> None:
        """Begin to replace the primary; `ServerError` while the replica is not yet trusted."""
        self.cli("sentinel", "failover", NAME)

    def is_settled(self) -> bool:
        """Whether it knows a primary and two other Sentinels, and no failover is going on."""
        fields = self._fields("master")
        return (fields["flags"], fields["num-other-sentinels"]) == ("master", "2")

    def is_content(self) -> bool:
        """Whether it is settled and knows a replica that follows the primary."""
        return self.is_settled() and self._replica_follows()

    def _replica_follows(self) -> bool:
        fields = self._fields("replicas")
        known = (fields.get("flags"), fields.get("master-port"), fields.get("master-link-status"))
        return known == ("slave", str(self.primary_port()), "ok")

    def _fields(self, what: str) -> dict[str, str]:
        lines = self.cli("sentinel", what, NAME).splitlines()
        return dict(zip(lines[::2], lines[1::2], strict=True))


class SentinelSetup:
    """One primary, one replica and three Sentinels, which replace the primary when told to.

    *password* is that of the two servers; the Sentinels have none. *config* are more lines for the
    servers' redis.conf.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        config: Sequence[str] = (),
        executable: str = EXECUTABLE,
    ) -> None:
        lines = [*config, *([f"masterauth {password}"] if password else [])]
        first = RedisServer(password=password, config=lines, executable=executable)
        lines.append(f"replicaof {HOST} {first.port}")
        second = RedisServer(password=password, config=lines, executable=executable)
        self.servers = (first, second)
        self.sentinels = tuple(Sentinel(first, executable=executable) for _ in range(3))

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
        """redis+sentinel://host:port,host:port,host:port/mymaster/0, with `PATIENCE`."""
        return with_options(self.bare_url, timeout=PATIENCE)

    @property
    def bare_url(self) -> str:
        """The same without options."""
        places = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{self.servers[0].credentials}{places}/{NAME}/0"

    def start(self) -> None:
        """Start all five, and wait until the replica follows and the Sentinels agree."""
        for server in self.servers:
            server.start()
        first, second = self.servers
        wait_until(lambda: _follows(second, first), f"{second} follows {first}")
        for sentinel in self.sentinels:
            sentinel.start()
            sentinel.hurry()
        self.wait_until_ok()

    def stop(self) -> None:
        """End all five."""
        for instance in (*self.sentinels, *self.servers):
            instance.close()

    def primary(self) -> RedisServer:
        """The primary that all the Sentinels name; `ServerError` while they do not agree."""
        said = {one.primary_port() for one in self._answering()}
        if len(said) > 1:
            raise ServerError(f"the Sentinels do not agree who is primary: {sorted(said)}")
        return next(server for server in self.servers if server.port in said)

    def replica(self) -> RedisServer:
        """The one that is not the primary; it may be down."""
        first, second = self.servers
        return second if self.primary() is first else first

    def fail_over(self) -> RedisServer:
        """Kill the primary and have its replica take its place; the result is the new primary.

        `restart()` of the dead one makes it a replica, after a second in which it knows no better
        than that it is the primary; `wait_until_ok` waits for that.
        """
        self.primary().kill()
        return self.promote()

    def switch_over(self) -> RedisServer:
        """Swap the roles of two healthy servers; the result is the new primary.

        The old primary lives on as a replica: it answers READONLY to a write.
        """
        new = self.promote()
        self.wait_until_ok()
        return new

    def promote(self) -> RedisServer:
        """Have the Sentinels make the replica primary, whatever has become of the primary.

        It is the result. All Sentinels know of it then, but the old primary, if it lives, may not.
        """
        new = self.replica()
        with self._patience():
            wait_until(lambda: self._promotes(new), f"{new} is promoted", within=30.0)
            for sentinel in self._answering():
                wait_until(sentinel.is_settled, f"{sentinel} has settled")
        return new

    def _promotes(self, new: RedisServer) -> bool:
        if self.primary() is not new:
            self._answering()[0].begin_failover()
            wait_until(lambda: self.primary() is new, f"{new} is primary", within=60.0)
        return new.info("replication")["role"] == "master"

    @contextmanager
    def _patience(self) -> Iterator[None]:
        for sentinel in self._answering():
            sentinel.be_patient()
        try:
            yield
        finally:
            for sentinel in self._answering():
                sentinel.hurry()

    def wait_until_ok(self) -> None:
        """Wait until the replica follows the primary, and every Sentinel knows all of it."""
        wait_until(lambda: _follows(self.replica(), self.primary()), "the replica follows")
        for sentinel in self._answering():
            wait_until(sentinel.is_content, f"{sentinel} knows all the others")

    def _answering(self) -> list[Sentinel]:
        if sentinels := [one for one in self.sentinels if one.is_answering]:
            return sentinels
        raise ServerError("no Sentinel runs")


def _follows(replica: RedisServer, primary: RedisServer) -> bool:
    state = replica.info("replication")
    where = (state["role"], state.get("master_port"), state.get("master_link_status"))
    return where == ("slave", str(primary.port), "up") and primary.replicates()
