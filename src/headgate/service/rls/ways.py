"""The short way to ask about one limit, where the store has one, and to say that it admits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.short_cuts import ShortCuts
from headgate.errors import StoreError
from headgate.responses.answer import WITHOUT_FIGURES
from headgate.service.rls.asking import is_passing
from headgate.service.rls.noting import begin
from headgate.service.rls.quick import is_plain, quick_answer
from headgate.service.rls.together import Together
from headgate.stores.memory import AsyncMemoryStore

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.service.core import Core
    from headgate.service.rls.answering import Answering
    from headgate.service.rls.asked import Asked, Part
    from headgate.service.rls.noting import Noting
    from headgate.service.rls.options import RlsOptions
    from headgate.service.rls.outage import Outage
    from headgate.service.rls.quick import Admitted
    from headgate.service.rls.steps import Said
    from headgate.stores.port import Asker, Hitter

Answer = Callable[[], bytes | Awaitable[bytes]]
"""A call, ready to be asked and answered."""

MOST_WAYS: Final = 4096
"""How many are kept: limits may depend on the caller."""


class Way(NamedTuple):
    """How to ask about a limit, at once or awaited; and what says quickly that it admits."""

    hit: Hitter | None
    ask: Asker | None
    admitted: Admitted | None


class ShortWays:
    """The short ways to the limits of late."""

    def __init__(
        self,
        core: Core,
        options: RlsOptions,
        outage: Outage,
        answering: Answering,
        noting: Noting,
    ) -> None:
        self._core = core
        self._options = options
        self._noting = noting
        self._store = core.engine.runner.store
        self._outage = outage
        self._answering = answering
        self._short_cuts = ShortCuts()
        self._ways: dict[tuple[str, str, str, Limit], Way] = {}
        self._together: Together | None = None
        if isinstance(self._store, AsyncMemoryStore):
            self._together = Together(core, options, self._store.store, answering, noting)

    def clear(self) -> None:
        """Forget them all, since what is said of limits has changed."""
        self._ways.clear()
        self._short_cuts = ShortCuts()
        if self._together is not None:
            self._together.clear()

    def answer(self, asked: Asked) -> Answer | None:
        """The short way to what is *asked*; None if there is none."""
        part = _only_part(asked)
        if part is None:
            return None if self._together is None else self._together.answer(asked)
        hit, ask, admitted = self._way(part)
        if hit is not None:
            return self._answer_at_once(asked, part, hit, admitted)
        return None if ask is None else self._answer_later(asked, part, ask, admitted)

    def _answer_at_once(
        self, asked: Asked, part: Part, hit: Hitter, admitted: Admitted | None
    ) -> Answer:
        check, finish, hear = part.checks[0], self._finish(asked, admitted), self._outage.hear
        key, cost, note = check.key, check.cost, self._noting.one

        def answer() -> bytes:
            began_ns = begin()
            try:
                decision = hit(key, cost)
            except StoreError as error:
                return self._without_store(asked, error, began_ns)
            hear()
            note(part, decision, began_ns)
            return finish(decision)

        return answer

    def _answer_later(
        self, asked: Asked, part: Part, ask: Asker, admitted: Admitted | None
    ) -> Answer:
        check, finish, hear = part.checks[0], self._finish(asked, admitted), self._outage.hear
        key, cost, note = check.key, check.cost, self._noting.one

        async def answer() -> bytes:
            began_ns = begin()
            try:
                decision = await ask(key, cost)
            except StoreError as error:
                return self._without_store(asked, error, began_ns)
            hear()
            note(part, decision, began_ns)
            return finish(decision)

        return answer

    def _finish(self, asked: Asked, admitted: Admitted | None) -> Callable[[Decision], bytes]:
        if admitted is None:
            return lambda decision: self._answering.answer(asked, [decision])

        def finish(decision: Decision) -> bytes:
            allowed, _, _, remaining, _, reset_ns, source, _ = decision.figures()
            if allowed and source not in WITHOUT_FIGURES:
                return admitted(remaining, reset_ns)
            return self._answering.answer(asked, [decision])

        return finish

    def _without_store(self, asked: Asked, error: StoreError, began_ns: int) -> bytes:
        said: Said = [None]
        self._outage.decide(asked.parts, (0,), said, error)
        self._noting.all(asked.parts, said, began_ns, passes=is_passing(asked.parts, said))
        return self._answering.answer(asked, said)

    def _way(self, part: Part) -> Way:
        check = part.checks[0]
        place = check.group, part.name, part.title, check.limit
        try:
            return self._ways[place]
        except KeyError:
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            hit = self._short_cuts.to(self._store, check)
            ask = None if hit is not None else self._store.asker([(check.group, check.limit)])
            way = self._ways[place] = Way(hit, ask, self._admitted(part))
            return way

    def _admitted(self, part: Part) -> Admitted | None:
        """What says quickly that a call passes under *part*; None if there is more to say."""
        with_headers = self._options.headers
        if self._options.metadata or part.headers != "on":
            return None
        if with_headers and not is_plain(self._core.answers):
            return None
        return quick_answer(part, self._core.clock, with_headers=with_headers)


def _only_part(asked: Asked) -> Part | None:
    """The one limit that a call has to pass, if there is nothing else to it."""
    if len(asked.parts) != 1 or len(asked.lines) != 1:
        return None
    part = asked.parts[0]
    if len(part.checks) != 1 or part.verb != "take" or part.role != "decides" or part.is_refused:
        return None
    # Who is refused one unit has nothing left, which needs no filling up.
    is_plain_charge = asked.charge == "all_or_nothing" or part.checks[0].cost == 1
    return part if is_plain_charge else None
