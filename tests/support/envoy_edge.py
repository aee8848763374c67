"""The gateway's Envoy, on a configuration that `headgate.gateway.envoy` has made."""

from __future__ import annotations

import json
import re
import socket
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from headgate.config import Address
from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Places
from headgate.policy.loader import read_policy
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.envoy import envoy_binary
from tests.support.servers.process import Driven, Process, ServerError
from tests.support.servers.upstream import QuietHandler, serving_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from headgate.gateway.envoy.values import Documents
    from headgate.policy.model import Policy

HOST = "127.0.0.1"
NO_SERVICE = f"{HOST}:1"


class Raw(NamedTuple):
    """An answer, as it came."""

    status: str
    head: str
    body: str

    def upstream(self) -> tuple[str, str]:
        """The method and the path that an upstream of `echoing` has seen."""
        told = json.loads(self.body)
        return told["method"], told["path"]


def receive(connection: socket.socket) -> Raw:
    """The next answer on *connection*; one without a status if it is closed before it is whole."""
    head, _, body = _until(connection, b"", rb"\r\n\r\n").partition(b"\r\n\r\n")
    length = re.search(rb"\ncontent-length: *(\d+)", head)
    if length is not None:
        body = _until(connection, body, rb"(?s).{%d}" % int(length[1]))
    status, _, lines = head.decode().partition("\r\n")
    return Raw(status[9:12], lines, body.decode())


def _until(connection: socket.socket, received: bytes, pattern: bytes) -> bytes:
    """*received* and what follows, until *pattern* is found or nothing follows."""
    with suppress(ConnectionResetError):
        while not re.search(pattern, received) and (more := connection.recv(65536)):
            received += more
    return received


class Gateway(Driven):
    """An Envoy that runs on the documents of *policy* and *settings*, in *directory*."""

    def __init__(self, directory: Path, policy: Policy | str, grpc: str, **settings: Any) -> None:
        self.port = free_port()
        self.directory = directory
        settings.setdefault("listen", (Address(HOST, self.port),))
        settings["upstream"] = tuple(map(parse_upstream, settings.get("upstream", ())))
        places = {"system_ca": settings.pop("system_ca")} if "system_ca" in settings else {}
        self.settings = GatewaySettings(**settings)
        self.places = Places(str(directory), (grpc,), str(directory / "admin.sock"), **places)
        self.written = self._write(policy)
        self._process: Process | None = None

    def __enter__(self) -> Self:
        (self.directory / "bootstrap.json").write_text(json.dumps(self.written.bootstrap))
        call = [envoy_binary(), "-c", str(self.directory / "bootstrap.json"), "-l", "warning"]
        call += [
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "--file-flush-interval-msec",
            "50",
            "--reject-unknown-dynamic-fields",
        ]
        call += ["--drain-strategy", "immediate", "--drain-time-s", "3600"]
        self._process = Process(call, self.directory / "output.log")
        wait_until(self._is_ready, "Envoy is ready", within=30.0)
        if not self._process.is_running:
            raise ServerError(f"Envoy ended at once; it printed:\n{self.log[-4000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        release_port(self.port)

    @property
    def log(self) -> str:
        return (self.directory / "output.log").read_text(errors="replace")

    @property
    def url(self) -> str:
        scheme = "http" if self.settings.listen_tls_cert is None else "https"
        return f"{scheme}://{HOST}:{self.port}"

    def reload(self, policy: Policy | str) -> None:
        """Give it the documents of another policy."""
        self.written = self._write(policy)

    def admin(self, path: str, *, method: str = "GET") -> str:
        """What the admin page at *path* says; `ServerError` if it says nothing."""
        request = f"{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n"
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(self.places.admin)
                connection.sendall(request.encode())
                return _body(b"".join(iter(lambda: connection.recv(65536), b"")))
        except OSError as error:
            raise ServerError(f"Envoy's admin page {path}: {error}") from error

    def stat(self, name: str) -> int:
        """The counter or gauge called *name*; 0 if there is none."""
        for line in self.admin("/stats").splitlines():
            if line.startswith(f"{name}: "):
                return int(line.removeprefix(f"{name}: "))
        return 0

    def raw(self, sent: bytes, *, within: float = 5.0) -> Raw:
        """What comes back for *sent* on a connection of its own."""
        with socket.create_connection((HOST, self.port), timeout=within) as connection:
            connection.sendall(sent)
            return receive(connection)

    def _write(self, policy: Policy | str) -> Documents:
        value = read_policy(policy) if isinstance(policy, str) else policy
        made = documents(value, self.settings, self.places)
        for name, content in made.discovered.items():
            beside = self.directory / f"{name}.new"
            beside.write_text(json.dumps(content))
            beside.replace(self.directory / name)
        return made

    def _is_ready(self) -> bool:
        if self._process is None or not self._process.is_running:
            return True  # what it printed is told
        return self.admin("/ready").strip() == "LIVE"


def _body(response: bytes) -> str:
    head, _, body = response.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body.decode()
    chunks, rest = b"", body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks, rest = chunks + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return chunks.decode()


class _Echo(QuietHandler):
    """Answers everything with what it was asked; it says its own name, too."""

    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        told = {
            "server": getattr(self.server, "told_name", ""),
            "method": self.command,
            "path": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "body": self.rfile.read(length).decode(),
        }
        body = json.dumps(told).encode()
        self.send_response(200)
        for name, value in getattr(self.server, "told_headers", ()):
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET


class _UnixEcho(_Echo):
    disable_nagle_algorithm = False  # sockets have none


class _UnixServer(ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "unix", 0

    def get_request(self) -> tuple[socket.socket, Any]:
        return super().get_request()[0], ("unix", 0)


@contextmanager
def echoing(
    name: str = "", *, path: str = "", headers: tuple[tuple[str, str], ...] = ()
) -> Iterator[str]:
    """An upstream that tells what it was asked; its URL."""
    unix: Any = _UnixServer  # its addresses are paths, other than the base class's
    server: Any = unix(path, _UnixEcho) if path else ThreadingHTTPServer((HOST, 0), _Echo)
    server.told_name, server.told_headers = name, headers
    with serving_in_thread(server):
        yield f"unix:{path}" if path else f"http://{HOST}:{server.server_port}"


def seen(reply: httpx.Response, name: str) -> list[str]:
    """The lines of the header *name* that an upstream of `echoing` has seen."""
    return [value for other, value in reply.json()["headers"] if other == name]
