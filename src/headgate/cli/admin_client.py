"""A client of the admin API of a service, for `top` and `loadtest`."""

from __future__ import annotations

import json
import os
import socket
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.errors import HeadgateError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE: Final = "HEADGATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
_TIMEOUT_S: Final = 5.0
_LONGEST_BODY: Final = 64 * 1024 * 1024
_LONGEST_MESSAGE: Final = 200
_LONGEST_TOKEN: Final = 4096
_EXPECTED: Final = "http://127.0.0.1:8090, https://host or unix:/run/headgate.sock"
_MEANINGS: Final = {
    401: "the service does not know this token; pass another with --token-file FILE",
    403: f"the admin API is disabled, or the token has no read access; see {TOKEN_VARIABLE}",
    404: "it has no such path; check that the URL is a headgate service of this version",
}


class AdminError(HeadgateError):
    """The service gave no answer. *is_final*: repeating the same request is of no use."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


def admin_token(path: str | None) -> str:
    """The admin token from the file at *path*, or from the variable. Raises `OptionError`."""
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
    else:
        try:
            with Path(path).open(encoding="ascii") as file:
                token = file.read(_LONGEST_TOKEN)
        except OSError as error:
            raise OptionError(f"--token-file {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise OptionError(f"--token-file {path}: an admin token is ASCII text") from error
    token = token.strip()
    if not token:
        where = path or TOKEN_VARIABLE
        raise OptionError(f"no admin token in {where}; set {TOKEN_VARIABLE} or pass --token-file")
    if not token.isascii() or not token.isprintable():
        raise OptionError("the admin token contains control characters")
    return token


class _UnixConnection(HTTPConnection):
    """A connection to the unix socket *path*."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class AdminClient:
    """Reads from the service at *url* with *token*, on a new connection each time.

    It follows no redirects: the token is for this server only. *flag* is the option with the URL,
    for errors. Raises `OptionError` for an invalid URL.
    """

    def __init__(
        self, url: str, token: str, *, flag: str = "--url", timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
        self._timeout_s = timeout_s
        self._socket = url.removeprefix("unix:").removeprefix("//")
        self._is_unix = url.startswith("unix:")
        try:
            parts = urlsplit("http://localhost" if self._is_unix else url)
            self._host, self._port = parts.hostname or "", parts.port
            self._host.encode("idna")  # the form that is resolved
        except ValueError:  # includes UnicodeError
            self._host = ""
        is_url = self._host and parts.scheme in ("http", "https") and parts.username is None
        is_plain = url.isascii() and url.isprintable() and " " not in url
        if not is_url or not self._socket or not (is_plain or self._is_unix):
            raise OptionError(f"{flag} is not the URL of a service; expected {_EXPECTED}")
        self._has_tls = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")

    def get(self, path: str) -> Mapping[str, Any]:
        """The JSON object at *path*. Raises `AdminError`."""
        connection = self._connection()
        try:
            connection.request("GET", f"{self._prefix}{path}", headers=self._headers)
            response = connection.getresponse()
            body = response.read(_LONGEST_BODY)
        except TimeoutError as error:
            raise AdminError("timed out") from error
        except OSError as error:
            raise AdminError(error.strerror or str(error) or type(error).__name__) from error
        except HTTPException as error:
            raise AdminError(f"the response is not HTTP ({type(error).__name__})") from error
        finally:
            connection.close()
        found = _json(body)
        if response.status != 200:
            detail = found.get("detail") if isinstance(found, dict) else None
            reason = f"HTTP {response.status} {response.reason}" + (f": {detail}" if detail else "")
            message = _MEANINGS.get(response.status, reason)[:_LONGEST_MESSAGE]
            raise AdminError(message, is_final=response.status in _MEANINGS)
        if not isinstance(found, dict):
            raise AdminError("the response is not a JSON object; is this a headgate service?")
        return found

    def _connection(self) -> HTTPConnection:
        if self._is_unix:
            return _UnixConnection(self._socket, self._timeout_s)
        kind = HTTPSConnection if self._has_tls else HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout_s)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
