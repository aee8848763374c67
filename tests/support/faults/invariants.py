"""What holds in every fault, checked the same way for each.

- A request is charged at most once, and every one that the store has admitted is charged.
- The store admits no more than the limit; beside it each process no more than its share.
- While the store cannot decide, each decision is the one that the rule's mode says, and it comes:
  the faults last until they are lifted, so a call that waited for the end of one would hang.
- Afterwards decisions come from the store again, of the same objects, without a restart.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from tests.support.faults.subjects import BATCH, CAPACITY, KINDS, LOCAL, SHARE, subject
from tests.support.servers import ServerError, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from headgate.limits import Accuracy
    from tests.support.faults.subjects import Answer, Subject

FOR_EVER: Final = 20.0
"""Seconds after which a decision is taken never to come: over a hundred times the deadline."""
RECOVERY: Final = 60.0
"""Seconds within which the store decides again, on whatever machine."""
BEFORE: Final = 4
DURING: Final = LOCAL + 3
"""Enough that the share of a process is used up."""
IN_A_ROW: Final = 3
"""So many decisions of the store in a row are a recovery."""
HERE: Final = frozenset({"fail_open", "local"})
BORROWED: Final = frozenset({"lease", "sync", "cache"})
"""Who borrows has something left for a while, and remembers refusals, whatever becomes of the
store."""

Effect = Literal["none", "some", "all"]
"""Which decisions of the store a fault prevents."""


@dataclass
class Trail:
    """The answers that the counter of one *mode* of one subject has got, in their order."""

    mode: str
    accuracy: Accuracy
    answers: list[Answer] = field(default_factory=list)

    @property
    def by_store(self) -> frozenset[str]:
        """The sources of decisions that the store makes, or has made in advance."""
        return frozenset({"store"}) if self.accuracy.is_exact else BORROWED | {"store"}

    def decided(self, *sources: str) -> int:
        return sum(one.source in sources for one in self.answers)

    def admitted(self, *sources: str) -> int:
        return sum(one.allowed and one.source in sources for one in self.answers)

    @property
    def here(self) -> int:
        """What the process has admitted by itself."""
        return self.admitted(*HERE)

    def is_right(self, answer: Answer, effect: Effect) -> bool:
        """Whether the next answer may be this one, in a fault with this *effect*."""
        if answer.source in self.by_store:
            return effect != "all" or answer.source in BORROWED
        return effect != "none" and self._is_of_the_mode(answer)

    def _is_of_the_mode(self, answer: Answer) -> bool:
        match self.mode:
            case "raw":
                return answer.source == "error"
            case "fail_closed":
                return answer.source == "fail_closed" and not answer.allowed
            case "local":
                return answer.source == "local" and self._may_be_so(answer)
            case _:
                source = "fail_open" if answer.allowed else "fallback"
                return answer.source == source and self._may_be_so(answer)

    def _may_be_so(self, answer: Answer) -> bool:
        """Whether a process may decide so by itself: it admits a share, less that of what it knows
        to be used in the store, or may know: a call without a reply may have been carried out."""
        if answer.allowed:
            return self.here < LOCAL
        used = len(self.answers) - self.decided(*self.by_store) + self.admitted(*self.by_store)
        return self.here + ceil(SHARE * used) >= LOCAL

    def check_counted(self, used: int, *, keeps_data: bool) -> None:
        """Check what the store has recorded as *used* against all the answers."""
        by_store, without = self.admitted(*self.by_store), len(self.answers)
        without -= self.decided(*self.by_store)
        late = 0 if self.accuracy.sync_ns is None else BATCH
        assert used <= CAPACITY, f"{used} charged of {CAPACITY}"
        if self.accuracy.is_exact:
            assert used <= by_store + without, f"{used} charged: {by_store}, at most {without} more"
        assert self.here <= LOCAL, f"{self.here} admitted without the store, of {LOCAL}"
        if keeps_data:
            assert by_store <= used + late, f"the store admitted {by_store} and charged {used}"
        else:
            most = 2 * CAPACITY + late
            assert by_store <= most, f"the store admitted {by_store} of {CAPACITY}, twice"


class Ordeal:
    """All kinds of subjects in the same fault, each in a thread of its own.

    *is_patient* is for faults in which the store answers each time: a busy machine may take longer
    than the short deadline, and then it would be a fault of its own.
    """

    def __init__(
        self, url: str, kinds: Sequence[type[Subject]] = KINDS, *, is_patient: bool = False
    ) -> None:
        self.subjects = [subject(kind, url, is_patient=is_patient) for kind in kinds]
        self.trails = {
            one: [Trail(mode, one.accuracy) for mode in one.modes] for one in self.subjects
        }
        self._pool = ThreadPoolExecutor(len(self.subjects))

    def suffer(
        self,
        fault: AbstractContextManager[object],
        direct_url: str,
        *,
        effect: Effect,
        keeps_data: bool = True,
    ) -> None:
        """Go through *fault* and check all that must hold; the store is counted at *direct_url*."""
        self._each(self._begin)
        with fault:
            troubles = self._troubles(lambda one: self._endure(one, effect))
        assert not troubles, "\n".join(troubles)  # when the fault is lifted: others use the server
        self._each(self._recover)
        self._each(lambda one: self._count(one, direct_url, keeps_data=keeps_data))

    def be_merged(
        self, fault: AbstractContextManager[object], direct_url: str, *, is_exact: bool
    ) -> None:
        """Go through *fault*, and check that what was admitted meanwhile is charged afterwards:
        all of it if *is_exact*, none of it twice anyway."""
        self._each(self._begin)
        with fault:
            troubles = self._troubles(self._use_share)
        assert not troubles, "\n".join(troubles)
        self._each(lambda one: self._merge(one, direct_url, is_exact=is_exact))

    def _use_share(self, one: Subject) -> None:
        trail = self._trail(one, "fail_open")
        trail.answers.extend(_timed(one, trail.mode) for _ in range(LOCAL - 1))

    def _merge(self, one: Subject, url: str, *, is_exact: bool) -> None:
        closed, trail = self._trail(one, "fail_closed"), self._trail(one, "fail_open")
        wait_until(
            lambda: _is_in_order(one, closed) and is_settled(one),  # without traffic nobody notices
            "the store decides again and is told",
            within=RECOVERY,
        )
        witness = one.witness(url)
        try:
            used = CAPACITY - witness.remaining(trail.mode)
        finally:
            witness.close()
        admitted = trail.admitted("store") + trail.here
        assert used == admitted if is_exact else used <= admitted, f"{used} of {admitted} charged"

    def _trail(self, one: Subject, mode: str) -> Trail:
        return next(trail for trail in self.trails[one] if trail.mode == mode)

    def _each(self, part: Callable[[Subject], None]) -> None:
        troubles = self._troubles(part)
        assert not troubles, "\n".join(troubles)

    def _troubles(self, part: Callable[[Subject], None]) -> list[str]:
        """Have every subject go through *part*; who failed in it, and how."""
        futures = [(one, self._pool.submit(part, one)) for one in self.subjects]
        troubles = []
        for one, future in futures:
            try:
                future.result(3 * FOR_EVER)
            except (AssertionError, ServerError, TimeoutError) as error:
                troubles.append(f"{type(one).__name__}: {error!r}")
        return troubles

    def _begin(self, one: Subject) -> None:
        for trail in self.trails[one]:
            wait_until(lambda trail=trail: _is_in_order(one, trail), "the store decides")  # type: ignore[misc]

    def _endure(self, one: Subject, effect: Effect) -> None:
        for _ in range(DURING if len(self.trails[one]) > 1 else IN_A_ROW):
            for trail in self.trails[one]:
                answer = _timed(one, trail.mode)
                said = [(each.source, each.allowed) for each in trail.answers]
                assert trail.is_right(answer, effect), f"{trail.mode}: {answer} after {said}"
                trail.answers.append(answer)

    def _recover(self, one: Subject) -> None:
        for trail in self.trails[one]:
            wait_until(
                lambda trail=trail: _is_in_order(one, trail),  # type: ignore[misc]
                f"the store decides again about {trail.mode} of {type(one).__name__}",
                within=RECOVERY,
            )

    def _count(self, one: Subject, url: str, *, keeps_data: bool) -> None:
        witness = one.witness(url)
        try:
            for trail in self.trails[one]:
                used = CAPACITY - witness.remaining(trail.mode)
                trail.check_counted(used, keeps_data=keeps_data)
        finally:
            witness.close()

    def close(self) -> None:
        self._pool.shutdown()
        for one in self.subjects:
            one.close()


@contextmanager
def ordeal(
    url: str, kinds: Sequence[type[Subject]] = KINDS, *, is_patient: bool = False
) -> Iterator[Ordeal]:
    """An `Ordeal` for the length of a block."""
    one = Ordeal(url, kinds, is_patient=is_patient)
    try:
        yield one
    finally:
        one.close()


def is_settled(one: Subject) -> bool:
    """True if the store is back and no usage is unreported or in flight."""
    fallback = one.fallback
    return not (fallback.is_out or fallback.needs_recovery or fallback._recovery.is_running)


def _is_in_order(one: Subject, trail: Trail) -> bool:
    """Hit a few times; whether the store decided each time."""
    answers: Sequence[Answer] = [_timed(one, trail.mode) for _ in range(IN_A_ROW)]
    trail.answers.extend(answers)
    return all(answer.source in trail.by_store for answer in answers)


def _timed(one: Subject, mode: str) -> Answer:
    """What comes of a hit; it must come before one would say that it hangs."""
    began = time.monotonic()
    answer = one.hit(mode)
    assert time.monotonic() - began < FOR_EVER, f"{mode}: {answer} came when nobody waited any more"
    return answer
