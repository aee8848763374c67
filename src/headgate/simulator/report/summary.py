"""The conclusion of a report, and the comparison of two outcomes of the same traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.simulator.report.wording import clipped, count, counted, share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.simulator.results import KeyResult, Outcome, RuleResult


def in_backticks(name: str) -> str:
    """Return a name as in plain text."""
    return f"`{clipped(name)}`"


def conclusion(outcomes: Sequence[Outcome], *, named: Callable[[str], str] = in_backticks) -> str:
    """Return the effect of one policy, or of a change from the first to the second, in a sentence.

    *named* makes names in it safe; all other words are plain ASCII.
    """
    if len(outcomes) == 1:
        return _of_one(outcomes[0], named)
    before, after = outcomes
    return _of_two(before, after, named)


def enforced(outcome: Outcome) -> list[RuleResult]:
    """Return the rules that decide, those that denied most first."""
    return [rule for rule in ordered(outcome) if rule.mode == "enforce"]


def verb_of(rule: RuleResult) -> str:
    """Return the verb for the denials of *rule*: a shadow rule only would have denied."""
    return "denied" if rule.mode == "enforce" else "would be denied"


def ordered(outcome: Outcome) -> list[RuleResult]:
    """Return all rules: shadow rules last, then those that denied most first."""
    return sorted(outcome.rules, key=lambda rule: (rule.mode != "enforce", -rule.denied))


def _of_one(outcome: Outcome, named: Callable[[str], str]) -> str:
    if not outcome.requests:
        return "There were no requests."
    asked = f"Of {counted(outcome.requests, 'request')} of {counted(outcome.callers, 'caller')}, "
    if not outcome.denied:
        return f"{asked}none would have been denied."
    return f"{asked}{_denied(outcome)} would have been denied{_blame(outcome, named)}."


def _denied(outcome: Outcome) -> str:
    part = share(outcome.denied, outcome.requests)
    return f"{count(outcome.denied)} ({part}) of {counted(outcome.callers_denied, 'caller')}"


def _blame(outcome: Outcome, named: Callable[[str], str]) -> str:
    denying = [rule for rule in enforced(outcome) if rule.denied]
    if not denying:
        return ""
    return f"; {'most' if len(denying) > 1 else 'all'} by {named(denying[0].rule_id)}"


def _of_two(before: Outcome, after: Outcome, named: Callable[[str], str]) -> str:
    if not before.requests and not after.requests:
        return "There were no requests."
    old, new = named(before.policy_name), named(after.policy_name)
    more = after.denied - before.denied
    if not more:
        same = "none" if not after.denied else f"as many, {_denied(after)},"
        return (
            f"Of {counted(after.requests, 'request')} of {counted(after.callers, 'caller')}, "
            f"{same} would have been denied with {new} and with {old}."
        )
    word = "more" if more > 0 else "fewer"
    return (
        f"With {new} instead of {old}, {count(abs(more))} {word} of "
        f"{counted(after.requests, 'request')} would have been denied: "
        f"{_denied(after)}, not {_denied(before)}."
    )


# Two outcomes of the same traffic, rule by rule.
#
# A rule reports the keys that it denied most. If these are all, the keys that are newly limited and
# relieved are known exactly; else their number is a lower bound, and `Shift.is_exact` is false.


@dataclass(frozen=True, slots=True)
class Shift:
    """The keys that one policy limits and the other does not: their number, and those known."""

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
        """True if it denies nothing under either policy."""
        return all(one is None or one.mode != "enforce" for one in (self.before, self.after))

    @property
    def denied(self) -> tuple[int, int]:
        """The number of denied requests before and after."""
        return (
            self.before.denied if self.before else 0,
            self.after.denied if self.after else 0,
        )

    @property
    def change(self) -> int:
        """The number of denied requests after, less that before."""
        before, after = self.denied
        return after - before

    @property
    def newly(self) -> Shift:
        """The keys with denials after, and none before."""
        return _shift(self.after, self.before)

    @property
    def relieved(self) -> Shift:
        """The keys with denials before, and none after."""
        return _shift(self.before, self.after)


def differences(before: Outcome, after: Outcome) -> tuple[RuleDifference, ...]:
    """Return every rule of either policy: shadow rules last, then the largest changes first."""
    old = {rule.rule_id: rule for rule in before.rules}
    new = {rule.rule_id: rule for rule in after.rules}
    both = [RuleDifference(one, old.get(one), new.get(one)) for one in {**old, **new}]
    return tuple(sorted(both, key=lambda one: (one.is_shadow, -abs(one.change), -max(one.denied))))


def _shift(here: RuleResult | None, there: RuleResult | None) -> Shift:
    """Return the keys with denials *here*, and none *there*."""
    if here is None or not here.keys_denied:
        return Shift(0, is_exact=True, keys=())
    if there is None or not there.keys_denied:
        return Shift(here.keys_denied, is_exact=True, keys=here.top_denied)
    known = {one.key for one in there.top_denied}
    if not _is_whole(there):  # a key that is not reported may have been denied there too
        return Shift(max(here.keys_denied - there.keys_denied, 0), is_exact=False, keys=())
    alone = tuple(one for one in here.top_denied if one.key not in known)
    fewest = max(len(alone), here.keys_denied - there.keys_denied)
    return Shift(fewest, is_exact=_is_whole(here), keys=alone)


def _is_whole(rule: RuleResult) -> bool:
    return len(rule.top_denied) >= rule.keys_denied


_MOST: Final = 2
_SKIPPED: Final = "are invalid"


def notes_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the notes on *outcomes*, each once."""
    notes = [note for outcome in outcomes for note in outcome.notes]
    skipped = max(outcome.skipped for outcome in outcomes)
    if skipped and not any(_SKIPPED in note for note in notes):
        notes.append(f"{counted(skipped, 'line')} of the trace {_SKIPPED}")
    if any(outcome.retries for outcome in outcomes):
        retries = " and ".join(count(outcome.retries) for outcome in outcomes)
        notes.append(f"{retries} of the requests repeat denied ones")
    return list(dict.fromkeys(notes))


def checked(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Return *outcomes*. Raises `OptionError` unless there are one or two."""
    given = tuple(outcomes)
    if not 1 <= len(given) <= _MOST:
        raise OptionError(f"a report is of one outcome or of two, not of {len(given)}")
    return given
