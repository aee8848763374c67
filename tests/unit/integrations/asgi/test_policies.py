"""Policies in files behind the middleware: put in force while requests flow."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control import PolicyFiles
from headgate.errors import HeadgateError, OptionError
from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from tests.support.asgi_connection import Answering, drive, exchange, http, statuses
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def text(limit: str, name: str = "rule") -> str:
    return f"version: 1\nrules:\n  - {{id: {name}, key_by: ip, limit: {limit}}}\n"


def write(path: Path, content: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(content)
    beside.replace(path)


def shown(app: Any) -> str:
    return drive(app).headers["ratelimit-policy"]


def is_refused(limiter: RequestLimiter) -> bool:
    state = limiter.policy_state
    return state is not None and state.problems is not None


def test_a_policy_file_that_changes_is_in_force_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    write(path, text("1000/hour"))
    limiter = RequestLimiter(policy=path)
    app = RateLimitMiddleware(Answering(), limiter=limiter)
    try:
        assert shown(app) == '"rule";q=1000;w=3600'
        write(path, text("500/hour"))
        wait_until(lambda: shown(app) == '"rule";q=500;w=3600', "the new policy is in force")
        used = drive(app).remaining
        write(path, "version: 1\nrules: [{id: rule, limt: 5/hour}]\n")
        wait_until(lambda: is_refused(limiter), "the bad file has been read")
        assert drive(app).remaining == used - 1
        assert shown(app) == '"rule";q=500;w=3600'
    finally:
        limiter.close()


@pytest.mark.parametrize("kind", [str, os.fspath, lambda path: path])
def test_a_policy_may_be_a_path_of_any_kind(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "rules.yaml"
    write(path, text("2/hour"))
    limiter = RequestLimiter(policy=kind(path))
    try:
        assert statuses(RateLimitMiddleware(Answering(), limiter=limiter), *[http()] * 3)[-1] == 429
    finally:
        limiter.close()


def test_a_bad_file_is_told_when_the_app_is_made(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    write(path, "version: 1\nrules: [{id: rule, limt: 5/hour}]\n")

    with pytest.raises(HeadgateError, match="limt"):
        RateLimitMiddleware(Answering(), policy=path)


def test_a_missing_file_is_told_when_the_app_is_made(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match=r"none\.yaml"):
        RateLimitMiddleware(Answering(), policy=tmp_path / "none.yaml")


def test_a_policy_and_limits_are_one_check_all_or_nothing() -> None:
    policy = read_policy(text("5/hour fixed_window"))
    app = RateLimitMiddleware(Answering(), policy=policy, limits="2/hour fixed_window")
    first = drive(app)

    assert first.headers["ratelimit-policy"] == '"rule";q=5;w=3600, "default";q=2;w=3600'
    assert statuses(app, *[http()] * 9)[0:2] == [200, 429]
    only = RateLimitMiddleware(Answering(), limiter=_without_limits(app.limiter, policy))
    assert drive(only).remaining == 2


def _without_limits(limiter: RequestLimiter, policy: Any) -> RequestLimiter:
    return RequestLimiter(policy=policy, store=limiter.engine.store)


def test_watching_begins_with_the_app_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    write(path, text("2/hour"))
    watching: list[bool] = []
    app = RateLimitMiddleware(_living, policy=path)

    async def scenario() -> None:
        messages: Any = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        scope = {"type": "lifespan", "note": lambda: watching.append(is_watched(app.limiter))}
        await exchange(app, scope, messages)

    assert not is_watched(app.limiter)
    asyncio.run(scenario())

    assert watching == [True]
    assert not is_watched(app.limiter)


def is_watched(limiter: RequestLimiter) -> bool:
    return limiter.policy_state is not None


def test_a_policy_that_changed_back_while_nobody_watched_is_in_force_again(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    write(path, text("1000/hour"))
    limiter = RequestLimiter(policy=path)
    app = RateLimitMiddleware(Answering(), limiter=limiter)
    try:
        assert shown(app) == '"rule";q=1000;w=3600'
        write(path, text("500/hour"))
        wait_until(lambda: shown(app) == '"rule";q=500;w=3600', "the new policy is in force")
        limiter.close()
        write(path, text("1000/hour"))
        wait_until(lambda: shown(app) == '"rule";q=1000;w=3600', "the old one is in force again")
    finally:
        limiter.close()


async def _living(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    scope["note"]()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def test_a_forked_process_watches_for_itself(tmp_path: Path) -> None:
    """Also if the thread of the other process was just looking, and had locks."""
    path = tmp_path / "rules.yaml"
    write(path, text("2/hour"))
    limiter = RequestLimiter(policy=path)
    limiter.watch()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:  # pragma: no cover (in another process)
                signal.alarm(20)
                watching = [is_watched(limiter)]
                limiter.watch()
                watching.append(is_watched(limiter))
                os._exit(0 if watching == [False, True] else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        limiter.close()


@pytest.mark.parametrize("wrong", [5, b"rules.yaml", {"version": 1}])
def test_a_policy_of_a_wrong_type_is_a_clear_error(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"policy is .*; expected a path or a Policy"):
        RateLimitMiddleware(Answering(), policy=wrong)


def test_files_are_never_read_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules.yaml"
    write(path, text("1000/hour"))
    limiter = RequestLimiter(policy=path)
    readers: list[str] = []
    read = PolicyFiles.read

    def noting(self: PolicyFiles) -> Any:
        readers.append(threading.current_thread().name)
        return read(self)

    monkeypatch.setattr(PolicyFiles, "read", noting)
    write(path, text("500/hour"))
    app = RateLimitMiddleware(Answering(), limiter=limiter)
    try:
        wait_until(lambda: shown(app) == '"rule";q=500;w=3600', "the new policy is in force")
    finally:
        limiter.close()

    assert set(readers) == {"headgate-policy-watcher"}
