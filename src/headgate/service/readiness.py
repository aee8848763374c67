"""Readiness of a worker: a policy in force, a store that has answered, no shutdown.

The store is probed every two seconds, with a deadline, by a peek at an unused counter. A worker is
not ready until the store has answered once, so that one with a wrong address does not replace a
working one. Later a failing store is reported but does not end readiness: it fails for all
replicas, and without any ready replica the rules' failure modes (`fail_open`, `fail_closed`,
`local`) could not apply.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.limits import TokenBucket
from headgate.runtime.supervised_task import SupervisedTask
from headgate.service.logs import LOG
from headgate.stores.base import group_name
from headgate.stores.operations import Check, Take

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.base import Store

EVERY: Final = 2.0
DEADLINE: Final = 1.0

NOT_YET: Final = "the store has not been checked yet"
_PROBE: Final = "readiness"
_LIMIT: Final = TokenBucket(1, 1)


class Readiness:
    """The readiness of this worker. *missing_rules* describes what the rules lack, if anything."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str,
        missing_rules: Callable[[], str | None],
        every: float = EVERY,
        deadline: float = DEADLINE,
    ) -> None:
        self._store = store
        self._missing_rules = missing_rules
        self._every, self._deadline = every, deadline
        self._probe = Take((Check(group_name(namespace, _PROBE), _PROBE, _LIMIT),), consume=False)
        self._trouble: str | None = NOT_YET
        self._looking = SupervisedTask(
            self._keep_looking, name="headgate-readiness", pause=every, on_mistake=self._failed
        )
        self.is_draining = False
        self._has_answered = False

    def reasons(self) -> tuple[str, ...]:
        """Reasons why this worker is not ready; empty if it is."""
        if self.is_draining:
            return ("the service is shutting down",)
        trouble = None if self._has_answered else self._trouble
        return tuple(text for text in (self._missing_rules(), trouble) if text is not None)

    def trouble(self) -> tuple[str, ...]:
        """Problems of a worker that is ready; empty if there are none."""
        return () if self._trouble is None or not self._has_answered else (self._trouble,)

    def store_trouble(self) -> tuple[str, ...]:
        """Problems of the store, ready or not; empty if there are none."""
        return () if self._trouble is None else (self._trouble,)

    async def start(self) -> None:
        """Probe the store once, then periodically."""
        await self.look()
        self._looking.start()

    async def look(self) -> None:
        """Probe the store now."""
        before = self._trouble
        self._trouble = await self._probe_store()
        self._has_answered = self._has_answered or self._trouble is None
        if self._trouble is not None and before in (None, NOT_YET):
            LOG.error("%s; the failure mode of each rule applies", self._trouble)
        elif self._trouble is None and before not in (None, NOT_YET):
            LOG.info("the store answers again")

    async def _probe_store(self) -> str | None:
        """Probe the store; the problem, or None if it answers."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._store.arun(self._probe)
        except TimeoutError:
            return f"the store did not answer within {self._deadline:g} s"
        except StoreError as error:
            return f"the store is unavailable ({error.reason})"
        return None

    async def aclose(self) -> None:
        """Stop probing."""
        await self._looking.aclose()

    def _failed(self, error: BaseException) -> None:
        self._trouble = f"the store is unavailable ({type(error).__name__})"

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.look()
