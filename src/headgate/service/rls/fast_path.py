"""The short way to ask about one limit, where the store has one, and to say that it admits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.decision import combine
from headgate.engine.prepared import PreparedTakes, decisions_of
from headgate.errors import StoreError
from headgate.responses.answer import WITHOUT_FIGURES
from headgate.responses.headers import limit_template, lines_of
from headgate.service.rls import messages
from headgate.service.rls.answer import MOST_TOLD, limit_field
from headgate.service.rls.asking import is_passing
from headgate.service.rls.noting import begin
from headgate.stores.base import concluded
from headgate.stores.memory import MemoryStore
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.service.core import Core
    from headgate.service.rls.answer import Answering
    from headgate.service.rls.asking import Outage, Said
    from headgate.service.rls.descriptors import Asked, Part
    from headgate.service.rls.noting import Noted, Noting
    from headgate.service.rls.reading import RlsOptions
    from headgate.stores.operations import Check


# The answer to a call that passes, made quickly.
#
# Most calls are such. What is the same for all of them is made beforehand; the answer is the one
# that `Answering` would give, and a property test holds the two together.


Left = tuple[int, int]
"""What is left of a limit, and the nanoseconds until all of it is back."""

Hit = Callable[[str, int], "Decision"]
"""From a key and a cost to the decision."""

Ask = Callable[[str, int], Awaitable["Decision"]]
"""The same, awaited."""

Admitted = Callable[[Sequence[Left]], bytes]
"""From what is left of the limits of a call that passed to the answer; the limits are in the order
of the parts and their checks."""

_LESS_THAN_A_SECOND: Final = SECOND - 1
_PASSES: Final = messages.overall(passes=True)


def quick_answer(parts: Sequence[Part], clock: Clock, *, with_headers: bool) -> Admitted:
    """What answers a call of one descriptor that has the limits of all *parts* to pass, and did.

    With headers, they are those of the two usual families.
    """
    owners, fields, templates = [], [], []
    for owner, part in enumerate(parts):
        for place, check in enumerate(part.checks, 1):
            title = part.title if place == 1 else f"{part.title}/{place}"
            owners.append(owner)
            fields.append(limit_field(part.name, check.limit))
            templates.append(limit_template(title, check.limit))
    places, header = range(len(owners)), messages.header_line
    totals = [header(*one.total_line) for one in templates]
    policy = header(b"ratelimit-policy", b", ".join([one.policy_line[1] for one in templates]))

    def answer(left: Sequence[Left]) -> bytes:
        place = min(places, key=lambda n: left[n][0])  # the first, of equal ones
        owner, remaining = owners[place], left[place][0]
        whole_ns = max([left[n][1] for n in places if owners[n] == owner])
        status = _status(fields[place], remaining, (whole_ns + _LESS_THAN_A_SECOND) // SECOND)
        if not with_headers:
            return status
        limits = [(templates[n], *left[n]) for n in places]
        _, least, reset, _, items = lines_of(limits, clock())
        return status + totals[place] + header(*least) + header(*reset) + policy + header(*items)

    def answer_of_one(left: Sequence[Left]) -> bytes:
        ((remaining, reset_ns),) = left
        status = _status(fields[0], remaining, (reset_ns + _LESS_THAN_A_SECOND) // SECOND)
        if not with_headers:
            return status
        _, least, reset, _, item = templates[0].lines(remaining, reset_ns, clock())
        return status + totals[0] + header(*least) + header(*reset) + policy + header(*item)

    return answer_of_one if len(places) == 1 else answer


@lru_cache(maxsize=4096)
def _status(field: bytes, remaining: int, seconds: int) -> bytes:
    """The code of the whole answer, and the one status of it."""
    return _PASSES + messages.status(field, remaining, seconds, passes=True)


# The short way to ask about several limits, for counters in this process.
#
# The parts that decide are one take, all or nothing, and each shadow is a take of its own, as in
# `asking`; what is out of the ordinary is left to that.


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
        self._takes = PreparedTakes(self._store)
        # By the identity of limits, which are kept with it: to hash one takes longer than a hit.
        self._known: dict[Limits, tuple[Sequence[Part], Admitted]] = {}

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
            if admitted is not None and (left := _together_left(taken)) is not None:
                return admitted(left)
            return self._answering.answer(asked, _together_said(parts, taken, beside))

        return answer

    def _taking(self, checks: Sequence[Check]) -> Taking:
        if not checks:
            return tuple
        take = self._takes.of(checks).take
        keys, costs = [check.key for check in checks], [check.cost for check in checks]
        return lambda: decisions_of(checks, take(keys, costs))

    def _admitted(self, asked: Asked, deciding: Sequence[Part]) -> Admitted | None:
        """What says quickly that a call passes; None if there is more to say."""
        options = self._options
        if options.metadata or (options.headers and not self._core.answers.has_usual_families):
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
            made = quick_answer(deciding, self._core.clock, with_headers=options.headers)
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


def _together_left(taken: Sequence[Decision]) -> list[Left] | None:
    """What is left of all limits; None if one refuses."""
    left = []
    for decision in taken:
        if not decision.allowed:
            return None
        left.append((decision.remaining, decision.reset_after_ns))
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


def _together_said(
    parts: Sequence[Part], taken: Sequence[Decision], beside: Iterable[Sequence[Decision]]
) -> Said:
    """What came of each part: *taken* is of all that decide, *beside* of each of the others."""
    left, others = iter(taken), iter(beside)
    said: Said = []
    for part in parts:
        own = islice(left, len(part.checks)) if part.role == "decides" else next(others)
        said.append(combine(tuple(own)))
    return said


Answer = Callable[[], bytes | Awaitable[bytes]]
"""A call, ready to be asked and answered."""

MOST_WAYS: Final = 4096
"""How many are kept: limits may depend on the caller."""


class Way(NamedTuple):
    """How to ask about a limit, at once or awaited; and what says quickly that it admits."""

    hit: Hit | None
    ask: Ask | None
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
        self._store = core.rules.engine.store
        self._outage = outage
        self._answering = answering
        self._takes = PreparedTakes(self._store)
        self._ways: dict[tuple[str, str, str, Limit], Way] = {}
        self._together: Together | None = None
        if isinstance(self._store, MemoryStore):
            self._together = Together(core, options, self._store, answering, noting)

    def clear(self) -> None:
        """Forget them all, since what is said of limits has changed."""
        self._ways.clear()
        self._takes = PreparedTakes(self._store)
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
        self, asked: Asked, part: Part, hit: Hit, admitted: Admitted | None
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
        self, asked: Asked, part: Part, ask: Ask, admitted: Admitted | None
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
            if decision.allowed and decision.source not in WITHOUT_FIGURES:
                return admitted(((decision.remaining, decision.reset_after_ns),))
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
            way = self._ways[place] = Way(*self._hit_or_ask(check), self._admitted(part))
            return way

    def _hit_or_ask(self, check: Check) -> tuple[Hit | None, Ask | None]:
        """A function that takes from the counter of a key, for a store that never waits; or one
        that is awaited."""
        limit = check.limit
        prepared = self._takes.of((check,))

        def hit(key: str, cost: int) -> Decision:
            return concluded(key, limit, prepared.take((key,), (cost,))[0])

        async def ask(key: str, cost: int) -> Decision:
            answer = prepared.atake((key,), (cost,))
            outcomes = answer if isinstance(answer, tuple) else await answer
            return concluded(key, limit, outcomes[0])

        return (None, ask) if self._store.waits else (hit, None)

    def _admitted(self, part: Part) -> Admitted | None:
        """What says quickly that a call passes under *part*; None if there is more to say."""
        with_headers = self._options.headers
        if self._options.metadata or part.headers != "on":
            return None
        if with_headers and not self._core.answers.has_usual_families:
            return None
        return quick_answer([part], self._core.clock, with_headers=with_headers)


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
