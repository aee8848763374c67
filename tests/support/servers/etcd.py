"""etcd: one server, or a cluster of three whose members can hang, die and come back.

    with EtcdServer() as server:
        server.url, server.ctl("get", "key")

Their data stay when they are restarted. What is here talks to them with `etcdctl`.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support.servers.certificates import Certificates
from tests.support.servers.ports import BUS, HOST, free_port, release_port
from tests.support.servers.process import Driven, Process, ServerError, run
from tests.support.servers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT_PASSWORD = "root-of-the-tests"  # noqa: S105 - of a server that lives for one test
_HEARTBEAT_MS, _ELECTION_MS = 50, 500

_open: dict[int, EtcdServer] = {}
_owner = os.getpid()


def etcd_is_installed() -> bool:
    """Whether this machine has the programs that these servers need."""
    return all(map(shutil.which, ("etcd", "etcdctl", "openssl")))


class EtcdServer(Driven):
    """One member on a loopback port of its own; alone, unless it is made by an `EtcdCluster`.

    - *tls*: speak TLS only, with `certificates`; with *client_certificates* the client must show
      one as well.
    - *options*: more of the command line, such as "--auth-token-ttl=1".

    Port and directory are there from the beginning, the process from `start` on. `close`, which is
    also the end of a `with`, gives everything back.
    """

    def __init__(
        self,
        *,
        tls: bool = False,
        client_certificates: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="headgate-"))
        self.name = f"member-{self.port}"
        self.peers: Sequence[EtcdServer] = (self,)
        self._certificates = Certificates(self.directory) if tls else None
        self._asks_clients = client_certificates
        self._options = tuple(options)
        self._has_users = False
        self._process: Process | None = None
        _open[id(self)] = self

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    @property
    def address(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """etcd:// or, with TLS, etcds:// with the authority to trust; without a user."""
        if self._certificates is None:
            return f"etcd://{self.address}/headgate"
        return f"etcds://{self.address}/headgate?ca={self._certificates.ca}"

    @property
    def certificates(self) -> Certificates:
        """The files a client needs; `ServerError` without *tls*."""
        if self._certificates is None:
            raise ServerError(f"{self} speaks no TLS: EtcdServer(tls=True) does")
        return self._certificates

    @property
    def peer_url(self) -> str:
        """Where other members find this one."""
        return f"http://{HOST}:{self.port + BUS}"

    @property
    def is_running(self) -> bool:
        """Whether the process is there, be it paused."""
        return self._process is not None and self._process.is_running

    @property
    def is_answering(self) -> bool:
        """Whether the process is there and not paused."""
        return self._process is not None and self.is_running and not self._process.is_paused

    @property
    def log(self) -> str:
        """What the process has printed so far."""
        path = self.directory / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start the process and wait until it answers; `ServerError` with its log if it does not.

        A member of a cluster answers when most of the others do.
        """
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the process, and wait for nothing."""
        if self.is_running:
            raise ServerError(f"{self} runs already")
        self._process = Process(self._command(), self.directory / "output.log")

    def wait(self) -> None:
        """Wait until a started process answers."""
        try:
            wait_until(self._has_begun, f"{self} answers", every=0.05)
        except ServerError as exc:
            raise ServerError(f"{exc}; it printed:\n{self.log[-4000:]}") from exc
        if not self.is_running:
            raise ServerError(f"{self} ended at once; it printed:\n{self.log[-4000:]}")

    def _has_begun(self) -> bool:
        if self.is_running:
            self.ctl("endpoint", "health", within=2.0)  # fails if it is not well
        return True

    def _command(self) -> list[str]:
        scheme = "https" if self._certificates else "http"
        client_url = f"{scheme}://{self.address}"
        settings = {
            "name": self.name,
            "data-dir": self.directory / "data",
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(f"{one.name}={one.peer_url}" for one in self.peers),
            "heartbeat-interval": _HEARTBEAT_MS,
            "election-timeout": _ELECTION_MS,
            "logger": "zap",
            "log-level": "error",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return ["etcd", *options, *self._security(), *self._options]

    def _security(self) -> list[str]:
        if self._certificates is None:
            return []
        files = self._certificates
        shown = [f"--cert-file={files.server}", f"--key-file={files.server_key}"]
        trusted = [f"--trusted-ca-file={files.ca}", "--client-cert-auth"]
        return [*shown, *(trusted if self._asks_clients else [])]

    def ctl(self, *arguments: str, within: float = 10.0) -> str:
        """What `etcdctl` prints, as root if there are users. `ServerError` if it fails."""
        call = [f"--endpoints={self.address}", "--command-timeout=5s", *arguments]
        if self._certificates is not None:
            files = self._certificates
            call[:0] = [
                f"--cacert={files.ca}",
                f"--cert={files.client}",
                f"--key={files.client_key}",
            ]
        env = {"ETCDCTL_API": "3"}
        if self._has_users:
            env["ETCDCTL_USER"] = f"root:{ROOT_PASSWORD}"
        return run("etcdctl", *call, env=env, within=within)

    def status(self) -> dict[str, Any]:
        """What this member says of itself: in `header` who it is; `leader`, if it knows of one."""
        found = json.loads(self.ctl("endpoint", "status", "-w", "json"))
        status: dict[str, Any] = found[0]["Status"]
        return status

    @property
    def revision(self) -> int:
        """The revision that etcd is at."""
        return int(self.status()["header"]["revision"])

    def compact(self) -> int:
        """Forget every revision of etcd's but the newest, which is the result."""
        revision = self.revision
        self.ctl("compact", str(revision), "--physical")
        return revision

    def add_user(self, name: str, password: str, *, permission: str, prefix: str) -> None:
        """A user who may `read`, `write` or `readwrite` all keys that begin with *prefix*.

        The first one makes that nobody may do anything without a login.
        """
        if not self._has_users:
            self.ctl("user", "add", f"root:{ROOT_PASSWORD}")
            self.ctl("user", "grant-role", "root", "root")
            self.ctl("auth", "enable")
            self._has_users = True
        self.ctl("role", "add", name)
        self.ctl("role", "grant-permission", name, "--prefix=true", permission, prefix)
        self.ctl("user", "add", f"{name}:{password}")
        self.ctl("user", "grant-role", name, name)

    def restart(self) -> None:
        """Stop the process, if it runs, and start it again with the data that it had."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the process, and give back its port and its directory."""
        self.kill()
        if _open.pop(id(self), None) is not None:
            release_port(self.port)
            shutil.rmtree(self.directory, ignore_errors=True)


class EtcdCluster:
    """Three members. Each of them is an `EtcdServer`, and may be stopped and started alone."""

    def __init__(self, *, options: Sequence[str] = ()) -> None:
        self.members = tuple(EtcdServer(options=options) for _ in range(3))
        for member in self.members:
            member.peers = self.members

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """etcd://host:port,host:port,host:port/headgate."""
        return f"etcd://{','.join(member.address for member in self.members)}/headgate"

    def start(self) -> None:
        """Start all three and wait until they have a leader."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait()

    def close(self) -> None:
        """End all three."""
        for member in self.members:
            member.close()

    def leader(self) -> EtcdServer:
        """The member that leads; waits until there is one."""
        found: list[EtcdServer] = []

        def is_found() -> bool:
            for member in self.members:
                if member.is_answering:
                    status = member.status()
                    if status.get("leader") == status["header"]["member_id"]:
                        found.append(member)
            return bool(found)

        wait_until(is_found, "the members have a leader", every=0.05)
        return found[0]


@atexit.register
def _close_all() -> None:
    if os.getpid() == _owner:  # a forked child has no say in what its parent started
        for server in list(_open.values()):
            server.close()
