"""Patterns of paths: `*` is one segment, `**` any number of them, none included."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.rules.matching.path import normalised_path

if TYPE_CHECKING:
    from headgate.rules.matching.path import Segments

ONE: Final = "*"
ANY: Final = "**"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The segments of a pattern, spelt as `normalised_path` spells them, no `**` after another.

    A segment that has more to it than an asterisk, like `v*`, stands for itself.
    """

    segments: Segments

    def fits(self, path: Segments) -> bool:
        """Whether *path* is one of those meant.

        When it fails, only the last `**` need take one segment more: no effort is worse than the
        product of both lengths.
        """
        pattern = (*self.segments, "")
        here = at = retry_at = 0
        retry_here: int | None = None
        while at < len(path):
            wanted = pattern[here]
            if wanted == ANY:
                here += 1
                retry_here, retry_at = here, at
            elif wanted in (ONE, path[at]):
                here += 1
                at += 1
            elif retry_here is not None:
                retry_at += 1
                here, at = retry_here, retry_at
            else:
                return False
        return pattern[here] == "" or pattern[here:] == (ANY, "")


@lru_cache(maxsize=1 << 14)
def compiled(text: str) -> Pattern:
    """The pattern that *text* says, in any spelling."""
    segments: list[str] = []
    for segment in normalised_path(text).split("/"):
        if segment and not (segment == ANY and segments[-1:] == [ANY]):
            segments.append(segment)
    return Pattern(tuple(segments))
