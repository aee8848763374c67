"""What a report is about: one outcome, or two of the same traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.simulator.report.words import count, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.results import Outcome

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
