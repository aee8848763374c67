"""The part of the contract that makes sense for Celery tasks, which run eagerly in threads.

A route is a task, and a request a run of it: 200 if it succeeds, 429 if it is rejected, 500 if it
fails. Headers are an argument of the task.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from celery import Celery

from headgate import Concurrency
from headgate.integrations.celery import TaskLimitedError, TaskLimits
from headgate.testing.capabilities import needs
from headgate.testing.integration_contract import Exchange, Reply, Route, Server, native_options
from headgate.testing.integration_contract.limits import RouteLimitContract
from headgate.testing.integration_contract.subject import IntegrationUnderTest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.testing.integration_contract import Answer, AppSpec, Behaviour


class TaskRun:
    """A run of a task."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def header(self, name: str) -> str | None:
        return self._headers.get(name)

    def read(self, size: int) -> bytes:
        return b""

    def report(self, amounts: Mapping[str, int]) -> None:
        raise NotImplementedError

    def forbid(self) -> Answer:
        raise PermissionError


class TaskServer(Server):
    """Runs *tasks*, each in a thread."""

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        self._tasks = tasks

    def open(self, method: str, path: str, headers: Mapping[str, str], length: int) -> TaskExchange:
        return TaskExchange(self._tasks[path], headers)

    def close(self) -> None:
        pass


class TaskExchange(Exchange):
    """A run of a task in a thread."""

    def __init__(self, task: Any, headers: Mapping[str, str]) -> None:
        self._task, self._headers = task, dict(headers)
        self._status = 200
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        result = self._task.apply(args=(self._headers,)).result
        if isinstance(result, BaseException):
            self._status = 429 if isinstance(result, TaskLimitedError) else 500

    def send(self, part: bytes, *, is_last: bool = False) -> None:
        raise NotImplementedError

    def start(self) -> Reply:
        self.wait()
        return Reply(self._status, ())

    def read(self) -> bytes:
        return b""

    def disconnect(self) -> None:
        raise NotImplementedError

    def wait(self) -> None:
        self._thread.join(30)


class CeleryContract(IntegrationUnderTest):
    """`TaskLimits.limit` on tasks, which rejects."""

    interface = "wsgi"  # it blocks
    has_app_limits = False

    def build(self, spec: AppSpec) -> dict[str, Any]:
        options = {"store": "memory://", **spec.options}
        limits, app = TaskLimits(**options), Celery("contract", set_as_current=False)
        return {route.path: self._task(app, limits, spec, route) for route in spec.routes}

    def _task(self, app: Celery, limits: TaskLimits, spec: AppSpec, route: Route) -> Any:
        def run(headers: dict[str, str]) -> None:
            spec.script.play(route.behaviour, TaskRun(headers))

        if route.limit is not None:
            own = native_options(route.limit, lambda call: call.arguments["headers"])
            run = limits.limit(when_limited="reject", **own)(run)
        return app.task(name=f"contract{route.path}", shared=False)(run)

    def serve(self, app: Any) -> TaskServer:
        return TaskServer(app)

    test_apart = RouteLimitContract.test_routes_without_a_shared_name_are_counted_apart
    test_shared = RouteLimitContract.test_routes_with_one_name_share_a_limit
    test_functions = (
        RouteLimitContract.test_limits_keys_and_costs_of_a_route_may_depend_on_the_request
    )
    test_exempt = RouteLimitContract.test_exempt_when_exempts_from_the_limit_of_a_route
    test_shadow = RouteLimitContract.test_a_route_limit_in_shadow_mode_denies_nothing

    @needs("has_route_limits")
    def test_a_slot_is_free_however_the_task_ends(self) -> None:
        own = {"limits": Concurrency(1, ttl=600), "name": "slot"}
        ends: tuple[Behaviour, ...] = ("ok", "raises", "fails")
        routes = [self.route(one, own) for one in (*ends, "waits")]
        self.start(*routes)
        assert [self.ask(f"/{one}").status for one in (*ends, "ok")] == [200, 500, 500, 200]
        waiting = self.open("/waits")
        self.script.entered.wait_for(5)
        assert self.ask("/ok").status == 429
        self.script.gate.open()
        assert waiting.finish().status == 200

    @needs("has_route_limits")
    def test_an_outage_fails_open_or_closed_as_the_limit_says(self) -> None:
        closed = {"limits": "9/hour", "on_store_failure": "fail_closed"}
        self.start(
            self.route("ok", {"limits": "2/hour"}),
            self.route("reads", closed),
            store=self.remote,
        )
        self.remote.is_gone = True
        assert self.statuses(3, "/ok") == [200, 200, 429]
        assert self.ask("/reads").status == 429

    def route(self, behaviour: Behaviour, own: dict[str, Any]) -> Route:
        """A task that does *behaviour*."""
        return Route(path=f"/{behaviour}", behaviour=behaviour, limit=own)
