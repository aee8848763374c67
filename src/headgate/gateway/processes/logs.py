"""The log of the gateway, and the parser of the log of Envoy."""

from __future__ import annotations

import logging
import re
from typing import Final

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
"""Log levels by the names that Envoy uses."""

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


class GatewayError(HeadgateError):
    """The gateway cannot run; the message says why and what to do."""


class TemporaryError(GatewayError):
    """The operation failed because of the state of this machine; a retry may succeed."""
