"""The log of the gateway, and the parsers for the logs of Envoy and the service."""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.observability.denials import FIELDS

LOG: Final = logging.getLogger("headgate.gateway")
ENVOY_LOG: Final = logging.getLogger("headgate.gateway.envoy")

LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Log levels by the names that Envoy and the service use."""

ENVOY_FORMAT: Final = "headgate|%l|%n|%v"
"""The format of Envoy's lines: level, component, message."""

_ENVOY_LINE: Final = re.compile(r"headgate\|(\w+)\|([^|]*)\|(.*)")
_NOISE: Final = (
    "there is no configured limit to the number of allowed active downstream connections",
    "caught SIGTERM",
    "caught ENVOY_SIGTERM",
    "shutting down server instance",
    "main dispatch loop exited",
    "exiting",
    "marked as work-in-progress",  # quotas are; the version of Envoy is pinned
    "Invalid hits_addend",  # a response without a cost, which is the usual case
    "null_value: NULL_VALUE",  # the second line of that message
)
"""Messages of Envoy without information for its users."""

_IGNORED: Final = frozenset(("rate_limit_quota",))
"""Components of Envoy that are not logged: this one logs the keys of callers."""

_FRAME: Final = re.compile(r"#\d+:? .*\[0x[0-9a-f]+\]$")
"""A line of a stack trace."""

_LONGEST: Final = 1_000
"""Characters of the last error that are kept, plus at most a line."""


def report(message: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log *message*; *fields* are added to the JSON line."""
    LOG.log(level, "%s", message, extra={FIELDS: fields})


class EnvoyLog:
    """Forwards the lines of Envoy if *is_forwarded*; before *is_ready* only warnings and errors.

    *last_error* is the most severe message since the start: the newest one, but the first of
    several critical ones.
    """

    def __init__(self, *, is_forwarded: bool = True) -> None:
        self.last_error = ""
        self.is_ready = False
        self._is_forwarded = is_forwarded
        self._level = logging.WARNING
        self._grave = 0
        self._part = ""

    def begin(self) -> None:
        """Prepare for a new process."""
        self.last_error, self._grave = "", 0
        self.is_ready = False

    def read_line(self, line: str) -> None:
        """Forward *line*; a line without a header continues the one before."""
        found = _ENVOY_LINE.fullmatch(line)
        if found is None:
            text = line
        else:
            self._part, text = found[2], found[3]
            self._level = LEVELS.get(found[1], logging.WARNING)
        if self._part in _IGNORED or _is_noise(text):
            return
        self._keep_error(text.strip(), is_more=found is None)
        if not self._is_forwarded or (self._level < logging.WARNING and not self.is_ready):
            return
        fields = {"part": self._part} if found is not None else {}
        ENVOY_LOG.log(self._level, "Envoy: %s", text, extra={FIELDS: fields})

    def _keep_error(self, text: str, *, is_more: bool) -> None:
        if self._level < max(self._grave, logging.WARNING):
            return
        if self._grave == logging.CRITICAL and not is_more:
            return  # the first one has the reason, the others the state
        is_more = is_more and self._level == self._grave and len(self.last_error) < _LONGEST
        self.last_error = f"{self.last_error} {text}" if is_more else text
        self._grave = self._level


def _is_noise(text: str) -> bool:
    is_known = any(noise in text for noise in _NOISE)
    return not text.strip() or is_known or _FRAME.match(text) is not None


class ServiceLog:
    """Forwards the JSON lines of the service; before *started* only warnings and errors.

    *started* is the record of its start. *last_error* is its last line that is not JSON: the reason
    why it cannot start.
    """

    _OWN: Final = frozenset(("time", "level", "logger", "message"))
    _SKIPPED: Final = frozenset(("started", "stopped"))

    def __init__(self) -> None:
        self.started: dict[str, Any] | None = None
        self.last_error = ""

    def begin(self) -> None:
        """Prepare for a new process."""
        self.started, self.last_error = None, ""

    def read_line(self, line: str) -> None:
        """Forward *line*."""
        record = _object(line)
        if record is None:
            if line.strip():
                self.last_error = line.strip().removeprefix("headgate serve: ")
                LOG.debug("the service: %s", self.last_error)
            return
        if record.get("event") == "started":
            self.started = record
        if record.get("event") in self._SKIPPED:
            return
        level = LEVELS.get(str(record.get("level")), logging.WARNING)
        if self.started is None and level < logging.WARNING:
            return
        fields = {name: value for name, value in record.items() if name not in self._OWN}
        message = str(record.get("message"))
        if "exception" in fields:
            message = f"{message}\n{fields['exception']}"
        logging.getLogger(_ours(record)).log(level, "%s", message, extra={FIELDS: fields})


def _object(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _ours(record: dict[str, Any]) -> str:
    name = str(record.get("logger", ""))
    return name if name.startswith("headgate") else "headgate.service"


class GatewayError(HeadgateError):
    """The gateway cannot run; the message says why and what to do."""


class TemporaryError(GatewayError):
    """The operation failed because of the state of this machine; a retry may succeed."""
