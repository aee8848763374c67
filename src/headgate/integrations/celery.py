"""Limits of Celery tasks, over all workers: wait for them, retry later, or reject.

    limits = TaskLimits("redis://localhost:6379/0")

    @app.task
    @limits.limit("10/minute", key="user", when_limited="retry")
    def send_mail(user, text): ...

The limit is checked when a worker begins a task. Celery's own `rate_limit` counts in each worker.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, Unpack, get_args

from headgate.errors import HeadgateError, OptionError, UsageError, not_installed

try:
    from celery import Task, current_task
    from celery.local import Proxy
except ModuleNotFoundError as error:
    raise not_installed("celery", error) from error

from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.decorators import LimitedFunction, limited_in
from headgate.integrations.request_context import RequestContext
from headgate.integrations.request_limiter import RequestLimiter
from headgate.integrations.request_view import RequestView
from headgate.integrations.route_limit import RouteLimit, shown_name
from headgate.responses import ResponseOptions
from headgate.responses.answer import denial_of
from headgate.runtime.drivers import drive
from headgate.runtime.effects import Sleep
from headgate.units import SECOND, duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.clock import Clock
    from headgate.engine.stack import Limits
    from headgate.integrations.route_limit import KeylessOptions, KeyOf, KeyValue, LimitsOf
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store
    from headgate.units import Seconds

__all__ = ["TaskCall", "TaskLimitedError", "TaskLimits", "WhenLimited"]

P = ParamSpec("P")
R = TypeVar("R")

WhenLimited = Literal["wait", "retry", "reject"]
_SPREAD: Final = ResponseOptions(jitter=0.1)
"""Tasks that were denied together do not come back together."""


class TaskLimitedError(HeadgateError):
    """A task that was rejected; *retry_after*: the seconds to wait, None if that does not help."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)  # both: result backends store the arguments
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class TaskCall(RequestView):
    """A run of a task, for key and cost functions: `call.arguments["user"]`, `call.task`."""

    __slots__ = ("arguments", "task")

    def __init__(self, task: Any, arguments: Mapping[str, Any]) -> None:
        super().__init__("POST", "")
        self.task = task
        self.arguments = arguments

    host: str = ""

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        return ()

    def _read_path(self) -> str:
        return f"/{self.task.name}"


class TaskLimits:
    """The limits of tasks, counted in *store*, a URL: all workers with the same one share them."""

    def __init__(
        self, store: str | Store, *, namespace: str = "headgate", clock: Clock | None = None
    ) -> None:
        self.limiter = RequestLimiter(
            store=store, namespace=namespace, clock=clock, responses=_SPREAD
        )
        self.limiter.check_blocking()

    def limit(
        self,
        limits: Limits | LimitsOf[TaskCall],
        *,
        key: str | KeyOf[TaskCall] | None = None,
        when_limited: WhenLimited = "retry",
        max_wait: Seconds = 10,
        **options: Unpack[KeylessOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Limit a task: write it below `@app.task`.

        *key*: the name of an argument, or a function of the `TaskCall`; without one, all runs of
        the task share a counter. *name*: tasks with the same name share a counter.

        *when_limited*: `retry` uses Celery's retry, with a countdown, and leaves `max_retries` to
        the task itself; `wait` keeps the worker waiting for up to *max_wait* seconds, and then
        retries; `reject` raises `TaskLimitedError`. A cost that can never fit is always rejected.
        *charge_when* gets a response with status 200, or 500 and the `error` of the task.

        Several limits on one task are one check, all or nothing. Called directly, without a worker,
        the function has no limit.
        """
        if when_limited not in get_args(WhenLimited):
            expected = ", ".join(map(repr, get_args(WhenLimited)))
            raise OptionError(f"when_limited is {when_limited!r}; expected one of {expected}")
        one = RouteLimit(
            limits=limits, key=_Argument(key) if isinstance(key, str) else key, **options
        )
        one.check_blocking()
        terms = when_limited, duration_ns(max_wait, "max_wait")

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            _check_function(function, one)
            before = limited_in(function, _LimitedTask)
            if before is not None and (before.limiter, before.terms) != (self.limiter, terms):
                raise OptionError(
                    "limits of one task need the same TaskLimits, when_limited, max_wait"
                )
            limited = _LimitedTask.around(function, one, self.limiter)
            limited.terms = terms
            return limited.wrapped(function)

        return decorate

    def close(self) -> None:
        """Close the store. The next task opens it again."""
        self.limiter.close()


class _Argument:
    """A key function: the argument *name* of the task."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, call: TaskCall) -> KeyValue:
        value: KeyValue = call.arguments[self.name]
        return value


class _LimitedTask(LimitedFunction):
    """A function with limits: checks each run of its task."""

    limiter: RequestLimiter
    terms: tuple[WhenLimited, int]
    """What to do with a task that is denied, and the longest wait in nanoseconds."""

    def begin(self, task: Any, call: TaskCall) -> Effects[RequestContext]:
        """Check a run of *task*: the context to complete, after a wait if need be; or raise."""
        limiter, (when_limited, left_ns) = self.limiter, self.terms
        if task.request.is_eager and when_limited == "retry":
            when_limited, left_ns = "wait", 0  # an eager retry has no countdown
        while True:
            context = RequestContext(limiter, call)
            limits = self.named(context, f":{task.name}", shown_name(task.name))
            rest = context.start_route(limiter, limits, call, call)
            if rest is None or (yield from rest):
                return context
            wait_ns = denial_of(context.answer(), limiter.responses).wait_ns
            seconds = None if wait_ns is None else wait_ns / SECOND
            if wait_ns is None or seconds is None or when_limited == "reject":
                hint = "never fits" if seconds is None else f"try again in {seconds:.1f} s"
                raise TaskLimitedError(f"the task {task.name} exceeds its limit: {hint}", seconds)
            if not task.request.is_eager and (when_limited == "retry" or wait_ns > left_ns):
                task.request.retries -= 1  # Celery adds one: this is no failed attempt
                raise task.retry(countdown=seconds, throw=False)
            left_ns -= wait_ns
            yield Sleep(seconds, limiter.now_ns)

    def wrapper(self) -> Callable[..., Any]:
        """The function of the task."""
        function, signature = self.function, inspect.signature(self.function)

        def run(*args: Any, **kwargs: Any) -> Any:
            task: Any = current_task
            if not task or task.request.called_directly:
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            context = drive(self.begin(task, TaskCall(task, bound.arguments)))
            response = CompletedResponse(200)
            try:
                return function(*args, **kwargs)
            except BaseException as raised:
                response = CompletedResponse(500, error=raised)
                raise
            finally:
                if context.has_end:
                    drive(context.complete(response))

        setattr(run, "__signature__", signature)  # noqa: B010 (Celery checks arguments by it)
        return run


def _check_function(function: object, one: RouteLimit) -> None:
    if isinstance(function, Proxy | Task):
        raise UsageError("cannot limit a task: write @limits.limit(...) below @app.task")
    if not inspect.isroutine(function):
        raise UsageError(f"cannot limit {function!r}; write @limits.limit(...) above a function")
    if inspect.iscoroutinefunction(function):
        raise UsageError("cannot limit an async function: Celery does not await tasks")
    key = one.key
    if isinstance(key, _Argument) and key.name not in inspect.signature(function).parameters:
        names = ", ".join(inspect.signature(function).parameters)
        raise OptionError(f"key is {key.name!r}; expected an argument of the task: {names}")
