"""Limits of Celery tasks: what a worker does with a task that is limited."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.app.trace import build_tracer
from celery.signals import before_task_publish

from headgate.errors import OptionError, StoreError, UsageError
from headgate.integrations.celery import TaskCall, TaskLimitedError, TaskLimits
from headgate.limits import Concurrency
from headgate.stores import Store
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.integrations import CompletedResponse


class DownStore(Store):
    """A store that fails."""

    def run(self, operation: object) -> Any:
        raise StoreError("it is down")

    def close(self) -> None:
        pass


class App:
    """A Celery app without a worker, and the messages that it publishes."""

    def __init__(self) -> None:
        self.celery = Celery("tests", broker="memory://", backend="cache+memory://")
        self.published: list[dict[str, Any]] = []
        before_task_publish.connect(self.record)

    def record(self, headers: dict[str, Any], **_: Any) -> None:
        self.published.append(headers)

    def task(self, function: Any, **options: Any) -> Any:
        celery: Any = self.celery
        return celery.task(name=f"tests.{function.__name__}", shared=False, **options)(function)

    def run(self, task: Any, *args: Any, retries: int = 0, **kwargs: Any) -> tuple[str, Any]:
        """Run *task* as a worker does; its state and result."""
        name = str(uuid4())
        request = {"id": name, "root_id": name, "args": args, "kwargs": kwargs, "retries": retries}
        trace: Any = build_tracer(task.name, task, app=self.celery)
        done = trace(name, args, kwargs, {**request, "delivery_info": {"routing_key": "celery"}})
        info = done.info
        return ("SUCCESS", done.retval) if info is None else (info.state, info.retval)

    def countdown(self) -> float:
        """The seconds until the last published message is due."""
        eta = datetime.fromisoformat(self.published[-1]["eta"])
        return (eta - datetime.now(eta.tzinfo)).total_seconds()


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    before_task_publish.disconnect(made.record)
    made.celery.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limits(clock: ManualClock) -> TaskLimits:
    return TaskLimits("memory://", clock=clock)


def double(number: int) -> int:
    return 2 * number


def test_an_allowed_task_runs(app: App, limits: TaskLimits) -> None:
    task = app.task(limits.limit("1/minute")(double))
    assert app.run(task, 4) == ("SUCCESS", 8)


def test_a_limited_task_is_retried_when_the_limit_allows_it(app: App, limits: TaskLimits) -> None:
    task = app.task(limits.limit("1/minute")(double))
    app.run(task, 4)
    assert app.run(task, 4)[0] == "RETRY"
    assert 55 < app.countdown() <= 66
    assert app.published[-1]["argsrepr"] == "(4,)"


def test_a_retry_for_a_limit_is_no_failed_attempt(app: App, limits: TaskLimits) -> None:
    task = app.task(limits.limit("1/minute")(double), max_retries=2)
    app.run(task, 4)
    assert app.run(task, 4, retries=2)[0] == "RETRY"
    assert app.published[-1]["retries"] == 2


def test_a_rejected_task_fails_and_says_when_to_try_again(app: App, limits: TaskLimits) -> None:
    task = app.task(limits.limit("1/minute", when_limited="reject")(double))
    app.run(task, 4)
    state, error = app.run(task, 4)
    assert state == "FAILURE"
    assert isinstance(error, TaskLimitedError)
    assert error.retry_after == pytest.approx(63, abs=3)
    assert str(error).startswith("the task tests.double exceeds its limit: try again in 6")
    assert not app.published


def test_a_cost_that_never_fits_is_rejected(app: App, limits: TaskLimits) -> None:
    task = app.task(limits.limit("5/minute", cost=6)(double))
    state, error = app.run(task, 4)
    assert state == "FAILURE"
    assert error.retry_after is None


def test_a_task_waits_in_the_worker(app: App, limits: TaskLimits, clock: ManualClock) -> None:
    task = app.task(limits.limit("1/minute", when_limited="wait", max_wait=90)(double))
    app.run(task, 4)
    began = clock()
    assert app.run(task, 4) == ("SUCCESS", 8)
    assert 60 <= (clock() - began) / 1e9 <= 66


def test_a_task_that_would_wait_too_long_is_retried(
    app: App, limits: TaskLimits, clock: ManualClock
) -> None:
    task = app.task(limits.limit("1/minute", when_limited="wait", max_wait=5)(double))
    app.run(task, 4)
    began = clock()
    assert app.run(task, 4)[0] == "RETRY"
    assert clock() == began


def test_an_eager_task_waits_in_place_of_a_retry(
    app: App, limits: TaskLimits, clock: ManualClock
) -> None:
    task = app.task(limits.limit("1/minute")(double))
    began = clock()
    assert [task.apply((4,)).get() for _ in range(3)] == [8] * 3
    assert (clock() - began) / 1e9 >= 120


@pytest.mark.parametrize("key", ["user", lambda call: call.arguments["user"]])
def test_a_key_is_an_argument_of_the_task(app: App, limits: TaskLimits, key: Any) -> None:
    def mail(user: str, text: str = "") -> str:
        return f"{user} {text}"

    task = app.task(limits.limit("1/minute", key=key)(mail))
    assert app.run(task, "ann")[0] == "SUCCESS"
    assert app.run(task, user="ann")[0] == "RETRY"
    assert app.run(task, "bob", text="hi") == ("SUCCESS", "bob hi")


def test_costs_exemptions_and_limits_are_functions_of_the_call(
    app: App, limits: TaskLimits
) -> None:
    def cost(call: TaskCall) -> int:
        assert call.path == "/tests.double"
        return int(call.arguments["number"])

    task = app.task(
        limits.limit(
            lambda _: "10/minute",
            cost=cost,
            exempt_when=lambda call: call.arguments["number"] == 0,
        )(double)
    )
    states = [app.run(task, number)[0] for number in (7, 4, 3, 1, 0)]
    assert states == ["SUCCESS", "RETRY", "SUCCESS", "RETRY", "SUCCESS"]


def test_tasks_have_counters_of_their_own_unless_they_share_a_name(
    app: App, limits: TaskLimits
) -> None:
    def halve(number: int) -> int:
        return number // 2

    one, other = (app.task(limits.limit("1/minute")(function)) for function in (double, halve))
    assert [app.run(task, 4)[0] for task in (one, other)] == ["SUCCESS"] * 2
    shared = App()
    named = [
        shared.task(limits.limit("1/minute", name="both")(function)) for function in (double, halve)
    ]
    assert [shared.run(task, 4)[0] for task in named] == ["SUCCESS", "RETRY"]
    shared.celery.close()


def test_stacked_limits_are_one_check(app: App, limits: TaskLimits) -> None:
    @limits.limit("3/minute")
    @limits.limit("1/minute", key="number")
    def work(number: int) -> int:
        return number

    task = app.task(work)
    states = [app.run(task, number)[0] for number in (1, 1, 2, 3, 4)]
    assert states == ["SUCCESS", "RETRY", "SUCCESS", "SUCCESS", "RETRY"]


def test_a_slot_is_held_while_the_task_runs(app: App, limits: TaskLimits) -> None:
    states: list[str] = []

    def work(depth: int) -> None:
        if depth:
            states.append(app.run(task, 0)[0])
            raise ValueError("broken")

    task = app.task(limits.limit(Concurrency(1, 60))(work))
    assert app.run(task, 1)[0] == "FAILURE"
    assert states == ["RETRY"]
    assert app.run(task, 0)[0] == "SUCCESS"  # a failed task releases its slot


def test_charge_when_sees_how_the_task_ended(app: App, limits: TaskLimits) -> None:
    def fails(response: CompletedResponse) -> bool:
        return isinstance(response.error, ValueError) and response.status_code == 500

    def work(is_broken: bool) -> None:
        if is_broken:
            raise ValueError("broken")

    task = app.task(limits.limit("1/minute", charge_when=fails)(work))
    states = [app.run(task, is_broken)[0] for is_broken in (False, False, True, False)]
    assert states == ["SUCCESS", "SUCCESS", "FAILURE", "RETRY"]


@pytest.mark.parametrize(("mode", "state"), [("fail_open", "SUCCESS"), ("fail_closed", "RETRY")])
def test_an_outage_of_the_store_opens_or_closes(app: App, mode: Any, state: str) -> None:
    limits = TaskLimits(DownStore())
    task = app.task(limits.limit("2/minute", on_store_failure=mode)(double))
    assert [app.run(task, 4)[0] for _ in range(2)] == [state] * 2


def test_a_bound_task_and_a_class_of_tasks_are_limited(app: App, limits: TaskLimits) -> None:
    def bound(self: Any, user: str) -> str:
        return f"{self.name} {user}"

    task = app.task(limits.limit("1/minute", key="user")(bound), bind=True)
    assert app.run(task, "ann") == ("SUCCESS", "tests.bound ann")
    assert app.run(task, "ann")[0] == "RETRY"

    class Mail(app.celery.Task):  # type: ignore[name-defined,misc]
        name = "tests.mail"

        @limits.limit("1/minute", key="user")
        def run(self, user: str) -> str:
            return user

    mail: Any = app.celery.register_task(Mail())
    assert [app.run(mail, "ann")[0] for _ in range(2)] == ["SUCCESS", "RETRY"]


def test_a_function_that_is_called_directly_has_no_limit(app: App, limits: TaskLimits) -> None:
    limited = limits.limit("1/minute")(double)
    task = app.task(limited)
    assert [limited(4), limited(4), task(4), task(4)] == [8] * 4


def test_celery_still_checks_the_arguments(app: App, limits: TaskLimits) -> None:
    task = app.task(limits.limit("1/minute")(double))
    with pytest.raises(TypeError, match="number"):
        task.delay()


def test_mistakes_are_reported_when_the_limit_is_declared(app: App, limits: TaskLimits) -> None:
    async def later(number: int) -> int:
        return number

    with pytest.raises(OptionError, match="expected an argument of the task: number"):
        limits.limit("1/minute", key="user")(double)
    with pytest.raises(OptionError, match="expected one of 'wait', 'retry', 'reject'"):
        limits.limit("1/minute", when_limited="drop")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"below @app\.task"):
        limits.limit("1/minute")(app.task(double))
    with pytest.raises(UsageError, match="async"):
        limits.limit("1/minute")(later)
    with pytest.raises(UsageError, match="above a function"):
        limits.limit("1/minute")(int)
    with pytest.raises(OptionError, match="need the same TaskLimits, when_limited"):
        limits.limit("1/minute")(limits.limit("1/minute", when_limited="wait")(double))
