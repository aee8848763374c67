"""Asking a service how it stands: `GET /admin/v1/live`, on one connection as long as it lasts."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.cli.top.live import Live, Scene, read_live
from headgate.errors import HeadgateError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.client import HTTPResponse


PATH: Final = "/admin/v1/live"
PATIENCE: Final = 5.0
"""Seconds that an answer may take."""
_LARGEST: Final = 64 * 1024 * 1024
_SHOWN: Final = 200
_EXPECTED: Final = "http://127.0.0.1:8090, https://host or unix:/run/headgate.sock"
_MEANING: Final = {
    401: "the token is not one of the service's: give another with --token-file FILE",
    403: "the admin API is closed, or the token may not read: see HEADGATE_ADMIN_TOKEN",
    404: f"there is no {PATH}: is this the URL of a headgate service, of this version?",
}


class LookError(HeadgateError):
    """The service did not say how it stands. *is_final*: it would not, asked the same again."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class _UnixConnection(HTTPConnection):
    """A connection to a socket in the file system."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Asker:
    """Asks the service at *url*, as the holder of *token*. For one thread.

    Raises `OptionError` for what is no URL.
    """

    def __init__(self, url: str, token: str, *, patience: float = PATIENCE) -> None:
        self._connection, self._path = _connection(url, patience)
        self._headers = {"authorization": f"Bearer {token}", "accept": "application/json"}

    def look(self) -> Mapping[str, Any]:
        """What the service says. Raises `LookError`."""
        is_kept = self._connection.sock is not None
        try:
            return self._asked()
        except (HTTPException, OSError) as error:
            self.close()
            if not is_kept or isinstance(error, TimeoutError):
                raise LookError(_told(error)) from error
        try:  # a connection that was kept may have been closed meanwhile: that is no trouble
            return self._asked()
        except (HTTPException, OSError) as error:
            self.close()
            raise LookError(_told(error)) from error

    def close(self) -> None:
        """Close the connection; it is opened again when somebody asks."""
        self._connection.close()

    def _asked(self) -> Mapping[str, Any]:
        self._connection.request("GET", self._path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read(_LARGEST)
        if response.status != 200:
            raise _refused(response, body)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LookError("what it answers is no JSON: is it a headgate service?") from error
        if not isinstance(found, dict):
            raise LookError("what it answers is no object: is it a headgate service?")
        return found


def _connection(url: str, patience: float) -> tuple[HTTPConnection, str]:
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path:
            raise OptionError(f"--url names no socket; expected {_EXPECTED}")
        return _UnixConnection(path, timeout=patience), PATH
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as the name will be looked up
    except ValueError:  # of which those about characters are, too
        host = port = None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise OptionError(f"--url is no URL of a service; expected {_EXPECTED}")
    path = f"{parts.path.rstrip('/')}{PATH}"
    if not path.isascii() or not path.isprintable() or " " in path:
        raise OptionError(f"--url has a path that cannot be sent; expected {_EXPECTED}")
    kind = HTTPConnection if parts.scheme == "http" else HTTPSConnection
    return kind(host, port, timeout=patience), path


def _refused(response: HTTPResponse, body: bytes) -> LookError:
    told = _MEANING.get(response.status)
    if told is None:
        told = f"it answers {response.status} {response.reason}: {_detail(body)}"
    return LookError(told[:_SHOWN], is_final=response.status in _MEANING)


def _detail(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return "without saying why"
    detail = found.get("detail") if isinstance(found, dict) else None
    return detail if isinstance(detail, str) else "without saying why"


def _told(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return f"its answer is not HTTP ({type(error).__name__})"


# Asking a service again and again, in a thread of its own, so that keys are never waited with.


_EARLIER: Final = 10
"""So many answers ago is what the latest is held against."""


class Watch:
    """What *asker* heard last, asked every *interval* seconds; *wake* is called after each."""

    def __init__(self, asker: Asker, url: str, interval: float, wake: Callable[[], None]) -> None:
        self._asker = asker
        self._url = url
        self._interval = interval
        self._wake = wake
        self._heard: deque[Live] = deque(maxlen=_EARLIER + 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-top", daemon=True)
        self.scene = Scene(None, url)
        """What there is to show: replaced as a whole."""
        self.final: LookError | None = None
        """Why the very first question was refused, and any other would be."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, and close the connection when that is known. It is not waited for: an answer
        may be seconds away."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until it has stopped, so long at most."""
        self._thread.join(seconds)

    def _run(self) -> None:
        lost_at: float | None = None
        while not self._stop.is_set():
            began = monotonic()
            try:
                self._hear(read_live(self._asker.look()))
                lost_at = None
            except LookError as error:
                if error.is_final and not self._heard:
                    self.final = error
                lost_at = lost_at or began
                self._lose(error, monotonic() - lost_at)
            self._wake()
            self._stop.wait(max(0.0, self._interval - (monotonic() - began)))
        self._asker.close()

    def _hear(self, live: Live) -> None:
        self._heard.append(live)
        earlier = self._heard[0] if len(self._heard) > 1 else None
        self.scene = Scene(live, self._url, earlier)

    def _lose(self, error: LookError, seconds: float) -> None:
        since = f" for {seconds:.0f} s" if seconds >= 1 else ""
        told = f"{self._url} does not say how it stands{since}: {error}; trying again"
        self.scene = Scene(self.scene.live, self._url, self.scene.earlier, told)
