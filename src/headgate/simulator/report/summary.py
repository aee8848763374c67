"""The sentence on top of a report: what it all comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.simulator.report.wording import clipped, count, counted, share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.simulator.results import KeyResult, Outcome, RuleResult


def in_backticks(name: str) -> str:
    """A name as it stands in a plain text."""
    return f"`{clipped(name)}`"


def conclusion(outcomes: Sequence[Outcome], *, named: Callable[[str], str] = in_backticks) -> str:
    """What one policy, or a change from the first to the second, would have done, in a sentence.

    *named* makes the names in it harmless where it is shown; all other words are plain ASCII.
    """
    if len(outcomes) == 1:
        return _of_one(outcomes[0], named)
    before, after = outcomes
    return _of_two(before, after, named)


def enforced(outcome: Outcome) -> list[RuleResult]:
    """The rules that refuse, those that refused most first; without those in shadow."""
    return [rule for rule in ordered(outcome) if rule.mode == "enforce"]


def refused_by(rule: RuleResult) -> str:
    """The word for what *rule* did: one in shadow only would have."""
    return "refused" if rule.mode == "enforce" else "would be refused"


def ordered(outcome: Outcome) -> list[RuleResult]:
    """All rules: those that refuse before those in shadow, then those that refused most first."""
    return sorted(outcome.rules, key=lambda rule: (rule.mode != "enforce", -rule.denied))


def _of_one(outcome: Outcome, named: Callable[[str], str]) -> str:
    if not outcome.requests:
        return "There was no request to decide on."
    asked = f"Of {counted(outcome.requests, 'request')} of {counted(outcome.callers, 'caller')}, "
    if not outcome.denied:
        return f"{asked}none would have been refused."
    return f"{asked}{_refused(outcome)} would have been refused{_blame(outcome, named)}."


def _refused(outcome: Outcome) -> str:
    part = share(outcome.denied, outcome.requests)
    return f"{count(outcome.denied)} ({part}) of {counted(outcome.callers_denied, 'caller')}"


def _blame(outcome: Outcome, named: Callable[[str], str]) -> str:
    refusing = [rule for rule in enforced(outcome) if rule.denied]
    if not refusing:
        return ""
    return f"; {'most' if len(refusing) > 1 else 'all'} by {named(refusing[0].rule_id)}"


def _of_two(before: Outcome, after: Outcome, named: Callable[[str], str]) -> str:
    if not before.requests and not after.requests:
        return "There was no request to decide on."
    old, new = named(before.policy_name), named(after.policy_name)
    more = after.denied - before.denied
    if not more:
        same = "none" if not after.denied else f"as many, {_refused(after)},"
        return (
            f"Of {counted(after.requests, 'request')} of {counted(after.callers, 'caller')}, "
            f"{same} would have been refused with {new} and with {old}."
        )
    word = "more" if more > 0 else "fewer"
    return (
        f"With {new} instead of {old}, {count(abs(more))} {word} of "
        f"{counted(after.requests, 'request')} would have been refused: "
        f"{_refused(after)}, not {_refused(before)}."
    )


# Two outcomes of the same traffic, rule by rule: what the second policy changes.
#
# A rule tells of the keys that it denied most, not of all. Where it told of all of them, who is
# newly limited and who is relieved is known exactly; where it did not, there are at least as many
# as can be seen, and `Shift.is_exact` says so.


@dataclass(frozen=True, slots=True)
class Shift:
    """Keys that one policy limits and the other does not: how many, and those that are known."""

    number: int
    is_exact: bool
    keys: tuple[KeyResult, ...]

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.number:,}"
        return f"at least {self.number:,}" if self.number else "not known"


@dataclass(frozen=True, slots=True)
class RuleDifference:
    """A rule under both policies; None where a policy does not have it."""

    rule_id: str
    before: RuleResult | None
    after: RuleResult | None

    @property
    def is_shadow(self) -> bool:
        """Whether it refuses nobody, under either policy."""
        return all(one is None or one.mode != "enforce" for one in (self.before, self.after))

    @property
    def denied(self) -> tuple[int, int]:
        """How many requests were denied before and after."""
        return (
            self.before.denied if self.before else 0,
            self.after.denied if self.after else 0,
        )

    @property
    def change(self) -> int:
        """How many more are denied after."""
        before, after = self.denied
        return after - before

    @property
    def newly(self) -> Shift:
        """Keys that are denied something after, and were denied nothing before."""
        return _shift(self.after, self.before)

    @property
    def relieved(self) -> Shift:
        """Keys that were denied something before, and are denied nothing after."""
        return _shift(self.before, self.after)


def differences(before: Outcome, after: Outcome) -> tuple[RuleDifference, ...]:
    """Every rule of either policy: those that refuse before those in shadow, then those that change
    most first."""
    old = {rule.rule_id: rule for rule in before.rules}
    new = {rule.rule_id: rule for rule in after.rules}
    both = [RuleDifference(one, old.get(one), new.get(one)) for one in {**old, **new}]
    return tuple(sorted(both, key=lambda one: (one.is_shadow, -abs(one.change), -max(one.denied))))


def _shift(here: RuleResult | None, there: RuleResult | None) -> Shift:
    """Keys denied something *here* and nothing *there*."""
    if here is None or not here.keys_denied:
        return Shift(0, is_exact=True, keys=())
    if there is None or not there.keys_denied:
        return Shift(here.keys_denied, is_exact=True, keys=here.top_denied)
    known = {one.key for one in there.top_denied}
    if not _is_whole(there):  # a key that is not told of may have been denied there all the same
        return Shift(max(here.keys_denied - there.keys_denied, 0), is_exact=False, keys=())
    alone = tuple(one for one in here.top_denied if one.key not in known)
    fewest = max(len(alone), here.keys_denied - there.keys_denied)
    return Shift(fewest, is_exact=_is_whole(here), keys=alone)


def _is_whole(rule: RuleResult) -> bool:
    return len(rule.top_denied) >= rule.keys_denied


# What a report is about: one outcome, or two of the same traffic.


_MOST: Final = 2
_SKIPPED: Final = "were not understood"


def notes_of(outcomes: Sequence[Outcome]) -> list[str]:
    """What is to be known about the figures of *outcomes*, each thing once."""
    notes = [note for outcome in outcomes for note in outcome.notes]
    skipped = max(outcome.skipped for outcome in outcomes)
    if skipped and not any(_SKIPPED in note for note in notes):
        notes.append(f"{counted(skipped, 'line')} of the trace {_SKIPPED}")
    if any(outcome.retries for outcome in outcomes):
        retries = " and ".join(count(outcome.retries) for outcome in outcomes)
        notes.append(f"{retries} of the requests were made because others had been refused")
    return list(dict.fromkeys(notes))


def checked(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """*outcomes* themselves, one or two of them. Raises `OptionError` for any other number."""
    given = tuple(outcomes)
    if not 1 <= len(given) <= _MOST:
        raise OptionError(f"a report is of one outcome or of two, not of {len(given)}")
    return given
