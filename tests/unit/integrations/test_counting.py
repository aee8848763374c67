"""Where the requests of an app are counted: with both runners, and without the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError
from headgate.integrations.request_limiter import RequestLimiter
from headgate.limits import Accuracy, FixedWindow
from headgate.policy.model import Match, Policy, Rule
from headgate.stores.base import Accuracies, group_name
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from headgate.stores.operations import Operation

BATCH = Accuracy(batch=5)


class Far(LoopStore):
    """A store for loops that is gone, and records the accuracies that it was given."""

    grants_leases = True

    def __init__(self) -> None:
        self.accuracies: Accuracies = {}

    async def arun(self, operation: Operation[Any]) -> Any:
        raise StoreError("gone", reason="circuit_open")

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies


def rule(name: str, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: (FixedWindow(10, 3_600),)}, **fields)


def test_the_policy_of_an_app_has_its_counters_kept_as_it_says() -> None:
    store = Far()
    limiter = RequestLimiter(policy=Policy((rule("a", accuracy=BATCH), rule("b"))), store=store)
    assert limiter.engine.fallback is not None
    assert store.accuracies == {group_name("headgate", "a"): BATCH}
