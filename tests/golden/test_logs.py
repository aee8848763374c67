"""What is logged when a store goes away and comes back, and when a policy is saved."""

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.python_api import RateLimiter, RequestLimiter
from tests.golden.recorder import check_text, check_wire
from tests.support.servers import RedisServer

PATIENCE = 60
POLICY = "version: 1\nrules:\n  - {id: per-ip, key_by: ip, limit: 5/hour}\n"


def until(is_done: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Do something again and again until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen"
        meanwhile()
        time.sleep(0.01)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events that were logged, each once, in the order in which they came."""
    return list(dict.fromkeys(str(getattr(one, "event", "none")) for one in _told(caplog)))


def sentences(caplog: pytest.LogCaptureFixture) -> str:
    """The first message of each event, without numbers and reasons of the machine."""
    found = {getattr(one, "event", None): one for one in reversed(_told(caplog))}
    lines = [
        f"{one.levelname} {one.name}: {_plain(one.getMessage())}"
        for one in reversed(found.values())
    ]
    return "\n".join(sorted(lines))


def _told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.levelno >= logging.INFO]


def _plain(text: str) -> str:
    """*text* without what differs from run to run."""
    placed = re.sub(r"/\S+/(?=[\w.]+:)", "<folder>/", text)
    placed = re.sub(r"(?<=failure policy; ).*", "<what the client library says>", placed)
    placed = re.sub(r"(?<=unreachable: ).*(?= \(since)", "<what the client library says>", placed)
    return re.sub(r"\d+(\.\d+)*(:\d+)?", "<n>", placed)


def test_a_store_that_goes_away_and_comes_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate")
    with RedisServer() as server, RateLimiter("1000/hour", store=server.url, name="api") as limiter:
        limiter.hit("user:1")
        server.stop()
        until(lambda: "store_breaker_open" in events(caplog), lambda: limiter.hit("user:1"))
        server.restart()
        until(
            lambda: {"store_outage_ended", "store_breaker_closed"} <= set(events(caplog)),
            lambda: limiter.hit("user:1"),
        )
    check_wire("log_events_store", sorted(events(caplog)))
    check_text("logs_store", sentences(caplog))


def test_a_policy_that_is_saved_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    limiter = RequestLimiter(policy=path)
    limiter.watch()
    lines = []
    try:
        for text in (POLICY.replace("5/hour", "6/hour"), POLICY.replace("5/hour", "5/hou"), POLICY):
            caplog.clear()
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").replace(path)  # at once, or half of it is read
            until(lambda: bool(_told(caplog)))
            lines += [f"{one.levelname} {one.name}: {_plain(one.message)}" for one in _told(caplog)]
    finally:
        limiter.close()
    check_text("logs_policy", "\n".join(lines))
