"""Patterns of paths: which are well formed, and which of two is the wider one.

`*` is one segment, `**` any number of them, none included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.matching.pattern import compiled
from headgate.rules.reading import scalars
from headgate.rules.reading.tree import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.rules.reading.findings import Findings, Spot

A_PATTERN: Final = "a path that begins with '/', with * for one segment and ** for any number"

_MOST_SEGMENTS: Final = 64


def pattern(spot: Spot) -> str | None:
    """A well-formed pattern."""
    found = scalars.word(spot, A_PATTERN)
    if found is None:
        return None
    flaw = flaw_of(found)
    if flaw:
        spot.wrong(f"{shown(found)} {flaw[0]}", hint=flaw[1])
        return None
    return found


def flaw_of(found: str) -> tuple[str, str] | None:
    """What is wrong with a pattern, and what would be right."""
    if not found.startswith("/"):
        near = f"/{found}" if found[0] not in "*?#" else f"/{found.lstrip('/')}"
        return "does not begin with '/'", f"did you mean {shown(near)}?"
    if any(letter in found for letter in "?# "):
        return "is not the pattern of a path", "leave out the query, the fragment and all spaces"
    segments = found.split("/")
    if len(segments) > _MOST_SEGMENTS:
        return f"has more than {_MOST_SEGMENTS} segments", ""
    for segment in segments:
        if "*" in segment and segment not in ("*", "**"):
            told = "** stands for whole segments" if "**" in segment else "* stands for a whole one"
            return f"has a wildcard glued to text in {shown(segment)}", f"{told}: /a/*/b, /a/**"
    return None


def covered(patterns: Sequence[str], findings: Findings) -> list[tuple[int, int]]:
    """Which pattern is within another or the same: pairs of their positions, one for each."""
    wild = [n for n, found in enumerate(patterns) if "*" in found]
    parts = [compiled(found).segments for found in patterns]
    lengths = sum(len(parts[n]) + 1 for n in wild) + 1
    if not findings.can_afford(lengths * sum(len(part) + 1 for part in parts) // 4):
        return []
    first: dict[tuple[str, ...], int] = {}
    pairs = []
    for inner, narrow in enumerate(parts):
        same = first.setdefault(narrow, inner)
        wider = (n for n in wild if parts[n] != narrow and is_within(narrow, parts[n]))
        outer = next(wider, None) if same == inner else same
        if outer is not None:
            pairs.append((inner, outer))
    return pairs


def is_within(narrow: tuple[str, ...], wide: tuple[str, ...]) -> bool:
    """Whether *wide* matches all that *narrow* matches, each as its segments."""
    return (not wide or wide[0] in ("*", "**", *narrow[:1])) and _is_within(narrow, wide)


def _is_within(narrow: tuple[str, ...], wide: tuple[str, ...]) -> bool:
    """The same, by the prefixes of *wide*: `reached[n]` says that n segments of it are used up."""
    reached = _closure({0}, wide)
    for segment in narrow:
        if segment == "**":
            reached = {n for n in reached if n < len(wide) and wide[n] == "**"}
        else:
            reached = {
                n if wide[n] == "**" else n + 1
                for n in reached
                if n < len(wide) and wide[n] in ("*", "**", segment)
            }
        reached = _closure(reached, wide)
    return len(wide) in reached


def _closure(reached: set[int], wide: tuple[str, ...]) -> set[int]:
    """*reached*, and what `**` as no segment at all reaches from there."""
    for n in range(len(wide)):
        if n in reached and wide[n] == "**":
            reached.add(n + 1)
    return reached
