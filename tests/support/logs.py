"""Loggers that a command makes its own, put back afterwards."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNED = ("headgate", "headgate.gateway.envoy", "uvicorn.error")


@contextmanager
def restored_logs() -> Iterator[None]:
    """Restore handlers, propagation and levels: later tests of the process rely on them."""
    loggers = [logging.getLogger(name) for name in _OWNED]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    try:
        yield
    finally:
        for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(level)
