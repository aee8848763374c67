"""Takes that have nothing to do with each other, of which some are for a part that fails."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from headgate.errors import StoreError
from headgate.stores.operations import Outcomes, TakeEach

if TYPE_CHECKING:
    from types import TracebackType

    from headgate.stores.guarded.guard import Guard, Passage


class Sifted:
    """The takes of *operation* that may be made, as a context; `outcomes` is what came of them.

    Each is noted by the breakers of its own parts. Who is not admitted has its error in its place.
    """

    def __init__(self, guard: Guard, operation: TakeEach) -> None:
        self.outcomes: tuple[Outcomes | StoreError, ...] = ()
        self._guard = guard
        self._takes = operation.takes
        self._refused: dict[int, StoreError] = {}
        self._passages: dict[int, Passage] = {}
        self.admitted: TakeEach | None = None

    def __enter__(self) -> Self:
        with ExitStack() as undoing:  # what was entered, should anything be raised here
            for place, take in enumerate(self._takes):
                passage = self._guard.passing(take)
                try:
                    undoing.enter_context(passage)
                except StoreError as error:
                    self._refused[place] = error
                else:
                    self._passages[place] = passage
            undoing.pop_all()
        if self._passages or not self._takes:
            self.admitted = TakeEach(tuple(self._takes[place] for place in self._passages))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for n, passage in enumerate(self._passages.values()):
            own = error
            if error is None and isinstance(found := self.outcomes[n], StoreError):
                own = found
            passage.__exit__(None if own is None else type(own), own, None)

    def merged(self) -> tuple[Outcomes | StoreError, ...]:
        """What came of each take; raises `StoreError` if nothing came of any: one after which
        something may have been done, if there is such a one."""
        came = iter(self.outcomes)
        merged = [self._refused.get(n) or next(came) for n in range(len(self._takes))]
        errors = [one for one in merged if isinstance(one, StoreError)]
        if errors and len(errors) == len(merged):
            raise min(errors, key=lambda error: error.is_undone)
        return tuple(merged)
