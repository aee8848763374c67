"""Whether a worker should be given requests: has it rules, has the store answered, does it stay.

The store is asked every other second, with a deadline: a look at a counter that nobody uses. A
worker is not ready until it has answered once, so that one with a wrong address takes nobody's
place. After that a store that is gone is trouble, and told, but no reason to be given no requests:
it is gone for all replicas alike, and if all of them were passed by, no rule could do what it says
for that case (`fail_open`, `fail_closed`, `local`).
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

NOT_YET: Final = "the store has not been asked yet"
_PROBE: Final = "readiness"
_LIMIT: Final = TokenBucket(1, 1)


class Readiness:
    """How this worker stands. *missing_rules* says in words what is missing of the rules, if so."""

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
            self._keep_looking, name="headgate-readiness", pause=every, on_mistake=self._mistaken
        )
        self.is_draining = False
        self._has_answered = False

    def reasons(self) -> tuple[str, ...]:
        """Why this worker should be given no requests; empty if it may."""
        if self.is_draining:
            return ("the service is shutting down",)
        trouble = None if self._has_answered else self._trouble
        return tuple(told for told in (self._missing_rules(), trouble) if told is not None)

    def trouble(self) -> tuple[str, ...]:
        """What is amiss, though requests are decided; empty if nothing is."""
        return () if self._trouble is None or not self._has_answered else (self._trouble,)

    def store_trouble(self) -> tuple[str, ...]:
        """What is wrong with the store, whether it has ever answered or not; empty if nothing."""
        return () if self._trouble is None else (self._trouble,)

    async def start(self) -> None:
        """Ask the store once, then go on asking."""
        await self.look()
        self._looking.start()

    async def look(self) -> None:
        """Ask the store now."""
        before = self._trouble
        self._trouble = await self._asked()
        self._has_answered = self._has_answered or self._trouble is None
        if self._trouble is not None and before in (None, NOT_YET):
            LOG.error("%s; requests are decided as each rule says for that case", self._trouble)
        elif self._trouble is None and before not in (None, NOT_YET):
            LOG.info("the store answers again")

    async def _asked(self) -> str | None:
        """What is wrong with the store, in words; None if it answers."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._store.arun(self._probe)
        except TimeoutError:
            return f"the store did not answer within {self._deadline:g} s"
        except StoreError as error:
            return f"the store cannot be asked ({error.reason})"
        return None

    async def aclose(self) -> None:
        """Ask no more."""
        await self._looking.aclose()

    def _mistaken(self, error: BaseException) -> None:
        self._trouble = f"the store cannot be asked ({type(error).__name__})"

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.look()
