"""What to say when the store cannot be asked: each part as its rule says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from headgate.algorithms import Outcome
from headgate.decisions import Concluded, FailurePolicy, OnFailure, combine
from headgate.errors import StoreError
from headgate.fallback import Asked
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls.steps import went_beyond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decisions import Decision
    from headgate.fallback import Fallback
    from headgate.service.rls.asked import Part
    from headgate.service.rls.steps import Places, Said

_POLICIES: Final = {policy: OnFailure(policy) for policy in get_args(FailurePolicy)}


class Outage:
    """Decides without the store, in *fallback*, which has the counters of this process for every
    way into it."""

    def __init__(self, fallback: Fallback) -> None:
        self._fallback = fallback

    def hear(self) -> None:
        """The store has answered."""
        if self._fallback.wants_word:
            self._fallback.succeed()

    def decide(
        self,
        parts: Sequence[Part],
        silent: Places,
        said: Said,
        error: StoreError,
        *,
        is_open: bool = True,
    ) -> None:
        """Note in *said* what comes of the parts in *silent*, to which the store said *error*.

        All or nothing, as ever: if another part refuses, these are only looked at. Raises
        `CallError` if an outage is to be an error.
        """
        if any(parts[n].on_failure == "error" for n in silent):
            self._fallback.fail(error)
            raise CallError(Code.UNAVAILABLE, "the store of the counters could not be asked")
        asked = {n: Asked(parts[n].checks, _on_failure(parts[n])) for n in silent}
        others = [n for n in range(len(parts)) if n not in asked]
        is_open = is_open and all(_is_open(parts[n], said[n]) for n in others)
        self._tell(parts, asked, said, error)
        for n in silent:
            if parts[n].verb == "look":
                said[n] = self._decide([asked[n]], error, consume=False)[0]
                is_open = is_open and _is_open(parts[n], said[n])
        takers = [n for n in silent if parts[n].verb == "take"]
        together = [n for n in takers if parts[n].role == "decides"]
        decided = self._decide([asked[n] for n in together], error, consume=is_open)
        for n, decision in zip(together, decided, strict=True):
            said[n] = decision
            is_open = is_open and decision.allowed
        for n in takers:
            if parts[n].role != "decides":
                said[n] = self._decide([asked[n]], error, consume=is_open)[0]
        self._count(parts, asked, said)

    def _decide(self, asked: list[Asked], error: StoreError, *, consume: bool) -> list[Decision]:
        return self._fallback.decide(asked, error, consume=consume, is_counted=False)

    def _count(self, parts: Sequence[Part], asked: dict[int, Asked], said: Said) -> None:
        """Count the call once: by what decided it, or had to be recorded, if anything did."""
        heard = [(n, decision) for n in asked if (decision := said[n]) is not None]
        binding = [one for one in heard if parts[one[0]].role in ("decides", "quota")] or heard
        self._fallback.count_request(
            [asked[n] for n, _ in binding], [decision for _, decision in binding]
        )

    def _tell(
        self, parts: Sequence[Part], asked: dict[int, Asked], said: Said, error: StoreError
    ) -> None:
        """Record what is reported, and give back what is given back."""
        for n, one in asked.items():
            if parts[n].verb == "report":
                said[n] = _told(
                    self._fallback.charge(one, error, is_counted=False), is_refund=False
                )
            elif parts[n].verb == "refund":
                said[n] = _told(self._fallback.refund(one, error, is_counted=False), is_refund=True)


def error_in(replies: Sequence[Any]) -> StoreError:
    """The error among *replies*, of which one is or has one; of several one that leaves open
    whether something was done."""
    found = []
    for reply in replies:
        each = reply if isinstance(reply, tuple) else (reply,)
        found += [one for one in each if isinstance(one, StoreError)]
    return min(found, key=lambda one: one.is_undone)


def _on_failure(part: Part) -> OnFailure:
    if part.rule is not None:
        return part.rule.on_failure
    return _POLICIES["fail_open" if part.on_failure == "error" else part.on_failure]


def _told(decision: Decision, *, is_refund: bool) -> Decision:
    """The figures after something was recorded or given back; the question was none."""
    if decision.source == "fail_closed":
        return decision
    return combine([_of_one(part, is_refund=is_refund) for part in decision.limits])


def _of_one(part: Decision, *, is_refund: bool) -> Decision:
    figures = Outcome(part.allowed, part.remaining, part.retry_after_ns, part.reset_after_ns)
    is_over = not is_refund and went_beyond(part.limit, figures)
    source = "fail_open" if part.source == "fallback" and not is_over else part.source
    return Concluded(
        part.key,
        part.limit,
        allowed=not is_over,
        remaining=part.remaining,
        retry_after_ns=part.retry_after_ns if is_over else 0,
        reset_after_ns=part.reset_after_ns,
        source=source,
    )


def _is_open(part: Part, decision: object) -> bool:
    """Whether *part* does not keep the others from being charged."""
    return part.role != "decides" or not part.is_question or decision is None or bool(decision)
