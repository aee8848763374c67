"""Slots with shares do what a slow and obvious book of leases does, and keep their promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headgate.algorithms import ConcurrencyAlgorithm
from headgate.algorithms.concurrency import CLAIM_NS, GRAIN_NS, KEEP_NS
from headgate.limits import Concurrency
from tests.support.histories import LATELY, SECOND, delays, examples

if TYPE_CHECKING:
    from headgate.algorithms.concurrency import Slots

PARTS = (None, "a", "b")
LEASES = "klmnopqr"
PAUSES = [0] * 6 + [1, GRAIN_NS, KEEP_NS // 2, KEEP_NS - 1, KEEP_NS, SECOND - 1]


class Visit(NamedTuple):
    """After *later*, *lease* of *part* comes in (if there is room), renews or leaves."""

    verb: str
    later: int
    part: str | None
    lease: str


_VISITS = st.lists(
    st.builds(
        Visit,
        st.sampled_from(["enter"] * 5 + ["renew", "leave", "leave"]),
        st.sampled_from(PAUSES) | st.sampled_from(PAUSES) | delays(SECOND, 1),
        st.sampled_from([*PARTS, "a"]),
        st.sampled_from(LEASES),
    ),
    min_size=10,
    max_size=30,
)
_SHARES = st.tuples(st.integers(1, 3), st.integers(1, 2))


@dataclass
class Book:
    """Every lease and every refusal, gone through from the beginning for each answer."""

    limit: int
    shares: dict[str, int]
    lends: bool
    leases: list[tuple[str, str | None, int]] = field(default_factory=list)
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    kept: list[tuple[str, int]] = field(default_factory=list)
    """A part and an instant for each slot that is kept, in the order in which they were."""

    def used(self, now: int, part: str | None = "all") -> int:
        return sum(now < end and part in ("all", own) for _, own, end in self.leases)

    def kept_for(self, now: int, *parts: str) -> int:
        return sum(part in parts and now < until for part, until in self.kept)

    def claimed_by(self, now: int, *parts: str) -> int:
        return sum(
            units for part, (units, until) in self.claims.items() if part in parts and now < until
        )

    def fits(self, part: str | None, cost: int, now: int) -> bool:
        """Whether so many, one after another, would be let in."""
        own, others = self.used(now, part), [name for name in self.shares if name != part]
        for more in range(cost):
            used = self.used(now) + more
            if not self.lends:
                if used >= self.limit:
                    return False
                used += sum(max(0, self.shares[name] - self.used(now, name)) for name in others)
            else:
                used += self.kept_for(now, *others)
                if used >= self.limit:
                    return False
                used += self.claimed_by(now, *others)
            is_own = part is not None and own + more < self.shares[part]
            if used >= self.limit and not is_own:
                return False
        return True

    def enter(self, lease: str, part: str | None, now: int) -> None:
        is_new = not self.has(lease, now)
        self.leases = [one for one in self.leases if one[0] != lease]
        self.leases.append((lease, part, now + SECOND))
        if not is_new:
            return
        for place, (whose, until) in reversed(list(enumerate(self.kept))):
            if whose == part and now < until:
                del self.kept[place]
                return
        if part in self.claims:
            units, until = self.claims.pop(part)
            if units > 1 and now < until:
                self.claims[part] = units - 1, until

    def refuse(self, part: str | None, now: int) -> None:
        if not self.lends or part is None or self.used(now, part) >= self.shares[part]:
            return
        lacking = self.shares[part] - self.used(now, part) - self.kept_for(now, part)
        units = min(self.claimed_by(now, part) + 1, lacking)
        if units:
            self.claims[part] = units, now + CLAIM_NS

    def has(self, lease: str, now: int) -> bool:
        return any(name == lease and now < end for name, _, end in self.leases)

    def part_of(self, lease: str) -> str | None:
        return next(own for name, own, _ in self.leases if name == lease)

    def leave(self, lease: str, whose: str | None, now: int) -> None:
        """The slot is given back by one of *whose*."""
        part = self.part_of(lease) if self.has(lease, now) else None
        self.leases = [one for one in self.leases if one[0] != lease]
        if part is None or part != whose or not self.lends:
            return
        wanted = self.kept_for(now, part) + self.claimed_by(now, part)
        if wanted + self.used(now, part) < self.shares[part]:
            until = now + KEEP_NS
            while until % GRAIN_NS:
                until += GRAIN_NS - until % GRAIN_NS
            self.kept.append((part, until))


class Both:
    """The algorithm and the book, asked for the same."""

    def __init__(self, limit: int, shares: tuple[int, int], *, lends: bool) -> None:
        sizes = dict(zip("ab", shares, strict=True))
        self.book = Book(limit, sizes, lends)
        self.state: Slots | None = None
        named = tuple(sizes.items())
        self.algorithms = {
            part: ConcurrencyAlgorithm(Concurrency(limit, 1, named, part, lends)) for part in PARTS
        }

    def do(self, visit: Visit, now: int) -> None:
        book, algorithm = self.book, self.algorithms[visit.part]
        has = book.has(visit.lease, now)
        assert algorithm.holds(self.state, visit.lease, now) == has
        if visit.verb == "leave":
            book.leave(visit.lease, visit.part, now)
            self.state = algorithm.leave(self.state, visit.lease, now)
        elif visit.verb == "renew":
            if has and self.state is not None:
                book.enter(visit.lease, book.part_of(visit.lease), now)
                self.state = algorithm.renew(self.state, visit.lease, now)
        elif book.fits(visit.part, 1, now):
            assert algorithm.wait(self.state, 1, now) == 0
            book.enter(visit.lease, visit.part, now)
            self.state = algorithm.enter(self.state, visit.lease, now)
        else:
            assert algorithm.wait(self.state, 1, now) != 0
            book.refuse(visit.part, now)
            self.state = algorithm.deny(self.state, 1, now)

    def compare(self, now: int) -> None:
        book = self.book
        for part, algorithm in self.algorithms.items():
            room = max(n for n in range(book.limit + 1) if book.fits(part, n, now))
            assert algorithm.used(self.state, now) == book.used(now)
            assert algorithm.remaining(self.state, now) == room
            for cost in range(1, book.limit + 2):
                wait = algorithm.wait(self.state, cost, now)
                assert (wait is None) == (not book.fits(part, cost, now + 100 * SECOND))
                if wait is not None:
                    assert book.fits(part, cost, now + wait)
                    assert wait == 0 or not book.fits(part, cost, now + wait - 1)
        fresh_in = self.algorithms[None].fresh_in(self.state, now)
        assert not book.used(now + fresh_in)


@examples(150)
@given(st.integers(0, 3), _SHARES, st.booleans(), _VISITS)
def test_every_answer_is_that_of_a_book_of_leases(
    more: int, shares: tuple[int, int], lends: bool, visits: list[Visit]
) -> None:
    both = Both(sum(shares) + more, shares, lends=lends)
    now = LATELY
    for n, lease in enumerate(LEASES):  # the first has its share, or one less, and others the rest
        both.do(Visit("enter", 0, "a" if n < shares[0] - more % 2 else None, lease), now)
    for visit in visits:
        now += visit.later
        both.do(visit, now)
        both.compare(now)
        assert both.book.used(now) <= both.book.limit


@examples(60)
@given(st.integers(0, 3), _SHARES, _VISITS)
def test_what_is_guaranteed_and_not_lent_can_be_had_at_once(
    more: int, shares: tuple[int, int], visits: list[Visit]
) -> None:
    both = Both(sum(shares) + more, shares, lends=False)
    now = LATELY
    for visit in visits:
        now += visit.later
        both.do(visit, now)
        for part, share in both.book.shares.items():
            lacking = share - both.book.used(now, part)
            assert both.algorithms[part].remaining(both.state, now) >= lacking


@examples(60)
@given(st.integers(0, 3), _SHARES, _VISITS)
def test_what_is_lent_never_lies_idle_unless_it_is_claimed(
    more: int, shares: tuple[int, int], visits: list[Visit]
) -> None:
    both = Both(sum(shares) + more, shares, lends=True)
    now = LATELY
    for visit in visits:
        now += visit.later
        both.do(visit, now)
        free = both.book.limit - both.book.used(now)
        later = now + CLAIM_NS
        assert both.algorithms[None].remaining(both.state, later) == both.book.limit - (
            both.book.used(later)
        )
        claimed = both.book.claimed_by(now, "a", "b") + both.book.kept_for(now, "a", "b")
        assert both.algorithms[None].remaining(both.state, now) == max(0, free - claimed)


@examples(60)
@given(st.integers(0, 3), _SHARES, st.permutations(range(8)))
def test_a_part_that_keeps_asking_has_its_share_after_as_many_slots_came_back(
    more: int, shares: tuple[int, int], order: list[int]
) -> None:
    both = Both(sum(shares) + more, shares, lends=True)
    for n in range(both.book.limit):
        both.do(Visit("enter", 0, None, f"borrowed{n}"), LATELY)
    share = both.book.shares["a"]
    for asked in range(share):  # as many as it lacks
        both.do(Visit("enter", 0, "a", f"refused{asked}"), LATELY)
    came_back = [n for n in order if n < both.book.limit][:share]
    for n in came_back:
        both.do(Visit("leave", 0, None, f"borrowed{n}"), LATELY)
        both.do(Visit("enter", 0, None, f"greedy{n}"), LATELY)
        both.do(Visit("enter", 0, "a", f"own{n}"), LATELY)
    assert both.book.used(LATELY, "a") == share


_REST = st.integers(0, KEEP_NS - 1) | st.sampled_from([0, KEEP_NS - 1])


@examples(100)
@given(st.integers(0, 3), _SHARES, st.data())
def test_a_part_that_is_busy_keeps_what_it_has_whatever_the_others_do(
    more: int, shares: tuple[int, int], data: st.DataObject
) -> None:
    both = Both(sum(shares) + more, shares, lends=True)
    share, now = both.book.shares["a"], LATELY
    for n in range(share):
        both.do(Visit("enter", 0, "a", f"own{n}"), now)
    for n in range(both.book.limit - share):
        both.do(Visit("enter", 0, None, f"other{n}"), now)
    away: dict[str, int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        visit = data.draw(st.sampled_from(OTHERS))
        both.do(visit, now)
        name = f"own{data.draw(st.integers(0, share - 1))}"
        if name not in away:
            both.do(Visit("leave", 0, "a", name), now)
            away[name] = now + data.draw(_REST)
        now += data.draw(st.sampled_from([0, 1, KEEP_NS // 3]))
        for name, back_at in sorted(away.items(), key=lambda one: one[1]):
            if back_at <= now:
                del away[name]
                both.do(Visit("enter", 0, "a", name), back_at)
                assert both.book.has(name, back_at), f"{name} was refused"
        for n in range(share):
            if f"own{n}" not in away:
                both.do(Visit("renew", 0, "a", f"own{n}"), now)


OTHERS = [
    Visit(verb, 0, part, f"other{n}")
    for verb in ("enter", "enter", "leave")
    for part in (None, "b")
    for n in range(7)
]


@examples(60)
@given(_SHARES, st.lists(st.tuples(st.booleans(), _REST), max_size=30))
def test_what_is_kept_is_the_most_that_a_part_has_had_of_late(
    shares: tuple[int, int], steps: list[tuple[bool, int]]
) -> None:
    both = Both(sum(shares), shares, lends=True)
    now, had = LATELY, []
    mine: list[str] = []
    for n, (comes, later) in enumerate(steps):
        now += later
        had.append((len(mine), -(-(now + KEEP_NS) // GRAIN_NS) * GRAIN_NS))
        if comes and len(mine) < both.book.shares["a"]:
            mine.append(f"own{n}")
            both.do(Visit("enter", 0, "a", mine[-1]), now)
        elif mine:
            both.do(Visit("leave", 0, "a", mine.pop()), now)
        for name in mine:
            both.do(Visit("renew", 0, "a", name), now)
        most = max(count for count, until in had if now < until)
        for_others = both.algorithms[None].remaining(both.state, now)
        assert both.book.limit - for_others == max(most, len(mine))
