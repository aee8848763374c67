"""Flask apps to try limits on, and what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Flask

from headgate.integrations.flask import RateLimits
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from werkzeug.test import TestResponse


class CountingStore(MemoryStore):
    """A store that notes how often it is asked."""

    asked = 0

    def run(self, operation: Any) -> Any:
        self.asked += 1
        return super().run(operation)


def made(**options: Any) -> tuple[Flask, RateLimits]:
    """An app with limits; its clock stands still."""
    app = Flask("asked")
    given: Any = {"clock": ManualClock(100)} | options
    return app, RateLimits(app, **given)


def ask(
    app: Flask, path: str = "/", *, method: str = "GET", peer: str = "203.0.113.7", **options: Any
) -> TestResponse:
    """What *app* answers to one request; the body is read to its end and closed."""
    given = {"method": method, "environ_overrides": {"REMOTE_ADDR": peer}, "buffered": True}
    return app.test_client().open(path, **{**given, **options})


def codes(app: Flask, path: str = "/", *, times: int, **options: Any) -> list[int]:
    """The statuses of so many requests."""
    return [ask(app, path, **options).status_code for _ in range(times)]


def left(answer: TestResponse) -> dict[str, int]:
    """What is left of each limit, by its name."""
    found = {}
    for part in answer.headers["RateLimit"].split(", "):
        name, figure = part.split(";")[:2]
        found[name.strip('"')] = int(figure.removeprefix("r="))
    return found
