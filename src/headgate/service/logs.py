"""Logs of the service: lines of text for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.observability import RECORDER
from headgate.observability.denials import FIELDS, Denials
from headgate.policy.identity.parts import hashed_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.config.service import Settings

LOG: Final = logging.getLogger("headgate.service")


class _Text(logging.Formatter):
    """`2026-11-16T12:00:00.123Z info message`, followed by the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time_of(record)} {record.levelname.lower()} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """One JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        content.update(getattr(record, FIELDS, {}))
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


def configure_logs(settings: Settings) -> None:
    """Log to stderr at the level and in the format of *settings*."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format == "json" else _Text())
    logger = logging.getLogger("headgate")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(settings.log_level.upper())


def log_denials(settings: Settings) -> Callable[[], None]:
    """Log denials of this process, up to the rate in *settings*; call the result to stop.

    Keys are always hashed, even if the dashboard shows them in clear: logs are copied elsewhere.
    """
    if not settings.log_denials:
        return lambda: None
    show_key = partial(hashed_key, salt=settings.salt or settings.secret)
    denials = Denials(per_second=settings.log_denials, show_key=show_key)
    return RECORDER.listen(denials, only_denials=True)


def log(message: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log *message*; *fields* are added to a JSON line."""
    LOG.log(level, message, extra={FIELDS: fields})


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"
