"""The short way to ask about several limits, for counters in this process.

The parts that decide are one take, all or nothing, and each shadow is a take of its own, as in
`asking`; what is out of the ordinary is left to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.decisions import combine
from headgate.engine.short_cuts import ShortCuts
from headgate.service.rls.answering import MOST_TOLD
from headgate.service.rls.noting import begin
from headgate.service.rls.quick import is_plain, quick_answer_of_all
from headgate.stores.operations import Take
from headgate.stores.port import concluded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.decisions import Decision
    from headgate.service.core import Core
    from headgate.service.rls.answering import Answering
    from headgate.service.rls.asked import Asked, Part
    from headgate.service.rls.noting import Noted, Noting
    from headgate.service.rls.options import RlsOptions
    from headgate.service.rls.quick import AdmittedByAll, Left
    from headgate.service.rls.steps import Said
    from headgate.stores.memory import MemoryStore
    from headgate.stores.operations import Check

Taking = Callable[[], Sequence["Decision"]]
"""A take that is ready to be made: the decision of each of its checks."""

Limits = tuple[tuple[str, str, int], ...]
"""What limits are called in a status and in headers, and which they are."""

MOST_KNOWN: Final = 1024
"""For how many sets of limits it is kept how to tell of them: limits may depend on the caller."""


class Together:
    """Takes from several limits of *store*, and answers."""

    def __init__(
        self,
        core: Core,
        options: RlsOptions,
        store: MemoryStore,
        answering: Answering,
        noting: Noting,
    ) -> None:
        self._noting = noting
        self._core = core
        self._options = options
        self._store = store
        self._answering = answering
        self._short_cuts = ShortCuts()
        # By the identity of limits, which are kept with it: to hash one takes longer than a hit.
        self._known: dict[Limits, tuple[Sequence[Part], AdmittedByAll]] = {}

    def clear(self) -> None:
        """Forget what is said of limits, since it has changed."""
        self._known.clear()

    def answer(self, asked: Asked) -> Callable[[], bytes] | None:
        """The short way to what is *asked*; None if it is out of the ordinary."""
        parts = asked.parts
        if asked.charge != "all_or_nothing" or not all(map(_is_plain, parts)):
            return None
        deciding = [part for part in parts if part.role == "decides"]
        take = self._taking([check for part in deciding for check in part.checks])
        shadows = [self._taking(part.checks) for part in parts if part.role != "decides"]
        admitted, note = self._admitted(asked, deciding), self._noting.each

        def answer() -> bytes:
            began_ns = begin()
            taken = take()
            beside = [take_shadow() for take_shadow in shadows]
            noted = _noted(parts, taken, beside)
            passes = all(allowed for part, allowed, _ in noted if part.role == "decides")
            note(noted, began_ns, passes=passes)
            if admitted is not None and (left := _left(taken)) is not None:
                return admitted(left)
            return self._answering.answer(asked, _said(parts, taken, beside))

        return answer

    def _taking(self, checks: Sequence[Check]) -> Taking:
        if not checks:
            return tuple
        hit = self._short_cuts.to(self._store, checks[0]) if len(checks) == 1 else None
        if hit is not None:
            key, cost = checks[0].key, checks[0].cost
            return lambda: (hit(key, cost),)
        store = self._store

        def take() -> Sequence[Decision]:
            taken = store.take_quickly(checks)
            if taken is not None:
                return taken
            outcomes = store.run(Take(tuple(checks)))
            pairs = zip(checks, outcomes, strict=True)
            return [concluded(check.key, check.limit, outcome) for check, outcome in pairs]

        return take

    def _admitted(self, asked: Asked, deciding: Sequence[Part]) -> AdmittedByAll | None:
        """What says quickly that a call passes; None if there is more to say."""
        options = self._options
        if options.metadata or (options.headers and not is_plain(self._core.answers)):
            return None
        if len(asked.lines) != 1 or not _are_simply_told(asked.parts, deciding):
            return None
        limits = tuple(
            [(part.name, part.title, id(check.limit)) for part in deciding for check in part.checks]
        )
        found = self._known.get(limits)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            made = quick_answer_of_all(deciding, self._core.clock, with_headers=options.headers)
            found = self._known[limits] = deciding, made
        return found[1]


def _is_plain(part: Part) -> bool:
    """Whether *part* charges what fits, alone or with others."""
    return part.verb == "take" and part.role != "quota" and not part.is_refused


def _are_simply_told(parts: Sequence[Part], deciding: Sequence[Part]) -> bool:
    """Whether all of *deciding*, and no others, are told, each by a title of its own."""
    if not 0 < len(deciding) <= MOST_TOLD or any(part.headers != "on" for part in deciding):
        return False
    if any(part.role == "shadow" for part in parts):
        return False
    return len({part.title for part in deciding}) == len(deciding)


def _left(taken: Sequence[Decision]) -> list[Left] | None:
    """What is left of all limits; None if one refuses."""
    left = []
    for decision in taken:
        allowed, _, _, remaining, _, reset_ns, _, _ = decision.figures()
        if not allowed:
            return None
        left.append((remaining, reset_ns))
    return left


def _noted(
    parts: Sequence[Part], taken: Sequence[Decision], beside: Iterable[Sequence[Decision]]
) -> list[Noted]:
    """What came of each part, as `_said`; of several limits that which refuses, or the first."""
    noted: list[Noted] = []
    start, others = 0, iter(beside)
    for part in parts:
        own = taken
        if part.role != "decides":
            own = next(others)
        elif len(part.checks) != len(taken):
            own = taken[start : start + len(part.checks)]
            start += len(part.checks)
        binding = own[0]
        for one in own:
            if not one.allowed:
                binding = one
                break
        noted.append((part, binding.allowed, binding))
    return noted


def _said(
    parts: Sequence[Part], taken: Sequence[Decision], beside: Iterable[Sequence[Decision]]
) -> Said:
    """What came of each part: *taken* is of all that decide, *beside* of each of the others."""
    left, others = iter(taken), iter(beside)
    said: Said = []
    for part in parts:
        own = islice(left, len(part.checks)) if part.role == "decides" else next(others)
        said.append(combine(tuple(own)))
    return said
