"""What those who run a gateway are told, and what the programs in it have said."""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Final

from headgate.errors import HeadgateError

LOG: Final = logging.getLogger("headgate.gateway")
ENVOY_LOG: Final = logging.getLogger("headgate.gateway.envoy")

FIELDS: Final = "headgate_fields"
"""Under which name a record carries figures for a JSON line, as the service has it."""

LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""The words of Envoy and of the service for how grave something is."""

ENVOY_FORMAT: Final = "headgate|%l|%n|%v"
"""How Envoy is asked to write a line: its level, what of Envoy says it, and what."""

_ENVOY_LINE: Final = re.compile(r"headgate\|(\w+)\|([^|]*)\|(.*)")
_NOISE: Final = (
    "there is no configured limit to the number of allowed active downstream connections",
    "caught SIGTERM",
    "caught ENVOY_SIGTERM",
    "shutting down server instance",
    "main dispatch loop exited",
    "exiting",
    "marked as work-in-progress",  # the quotas are, and are pinned by the version of Envoy
    "Invalid hits_addend",  # an answer that does not say what it has cost, and
    "null_value: NULL_VALUE",  # of what it is made: most answers
)
"""What Envoy says that nobody has to know: at its beginning, at its end, and as a matter of course.
"""

_UNHEARD: Final = frozenset(("rate_limit_quota",))
"""Parts of Envoy that are not passed on: this one names callers by their keys, and says for each
report that there is nobody to report to."""

_FRAME: Final = re.compile(r"#\d+:? .*\[0x[0-9a-f]+\]$")
"""A line of where in Envoy's code it was when it crashed."""

_LONGEST: Final = 1_000
"""How many characters of what Envoy said last are kept, or a line more."""


def tell(message: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log *message*; *fields* stand in a JSON line besides."""
    LOG.log(level, "%s", message, extra={FIELDS: fields})


class EnvoyVoice:
    """Envoy's lines, passed on. *last* is the gravest that it has said since it was
    started: the newest, but the first of what it ends by.

    Before it *serves* only what is grave: it begins with a list of all that it can do. Nothing at
    all unless it *is_passed_on*.
    """

    def __init__(self, *, is_passed_on: bool = True) -> None:
        self.last = ""
        self.serves = False
        self._is_passed_on = is_passed_on
        self._level = logging.WARNING
        self._grave = 0
        self._part = ""

    def begin(self) -> None:
        """Another Envoy is about to speak."""
        self.last, self._grave = "", 0
        self.serves = False

    def hear(self, line: str) -> None:
        """Pass *line* on; what has no head belongs to the line before it."""
        found = _ENVOY_LINE.fullmatch(line)
        if found is None:
            said = line
        else:
            self._part, said = found[2], found[3]
            self._level = LEVELS.get(found[1], logging.WARNING)
        if self._part in _UNHEARD or _is_noise(said):
            return
        self._remember(said.strip(), is_more=found is None)
        if not self._is_passed_on or (self._level < logging.WARNING and not self.serves):
            return
        fields = {"part": self._part} if found is not None else {}
        ENVOY_LOG.log(self._level, "Envoy: %s", said, extra={FIELDS: fields})

    def _remember(self, said: str, *, is_more: bool) -> None:
        if self._level < max(self._grave, logging.WARNING):
            return
        if self._grave == logging.CRITICAL and not is_more:
            return  # the first one says why; then it tells all that it was at
        is_more = is_more and self._level == self._grave and len(self.last) < _LONGEST
        self.last = f"{self.last} {said}" if is_more else said
        self._grave = self._level


def _is_noise(said: str) -> bool:
    is_known = any(noise in said for noise in _NOISE)
    return not said.strip() or is_known or _FRAME.match(said) is not None


class ServiceVoice:
    """The service's lines, which are JSON, passed on as they would be without us.

    *started* is what it has said of its start, None before; until then only what is grave is passed
    on. *last* is what it said last outside its log: why it cannot start.
    """

    _OWN: Final = frozenset(("time", "level", "logger", "message"))
    _UNTOLD: Final = frozenset(("started", "stopped"))

    def __init__(self) -> None:
        self.started: dict[str, Any] | None = None
        self.last = ""

    def begin(self) -> None:
        """Another service is about to speak."""
        self.started, self.last = None, ""

    def hear(self, line: str) -> None:
        """Pass *line* on."""
        said = _object(line)
        if said is None:
            if line.strip():
                self.last = line.strip().removeprefix("headgate serve: ")
                LOG.debug("the service: %s", self.last)
            return
        if said.get("event") == "started":
            self.started = said
        if said.get("event") in self._UNTOLD:
            return
        level = LEVELS.get(str(said.get("level")), logging.WARNING)
        if self.started is None and level < logging.WARNING:
            return
        fields = {name: value for name, value in said.items() if name not in self._OWN}
        message = str(said.get("message"))
        if "exception" in fields:
            message = f"{message}\n{fields['exception']}"
        logging.getLogger(_ours(said)).log(level, "%s", message, extra={FIELDS: fields})


def _object(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _ours(said: dict[str, Any]) -> str:
    name = str(said.get("logger", ""))
    return name if name.startswith("headgate") else "headgate.service"


# What keeps a gateway from starting, or from doing what it should.


class GatewayError(HeadgateError):
    """A gateway that cannot be run: the message says what is in the way, and what would help."""


class NotNowError(GatewayError):
    """It cannot be done as things are on this machine now; later it may be."""
