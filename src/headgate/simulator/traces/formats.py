"""How the lines of a trace are written: what a format must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from headgate.simulator.traces.problems import BrokenLineError

if TYPE_CHECKING:
    from headgate.simulator.traffic import Asked, Event

_MOST_KNOWN: Final = 100_000
_MOST_TOLD: Final = 3
_LONGEST_TOLD: Final = 200

Taken = tuple[int, Any, "int | None"]
"""When, what tells requests apart, and how long it took."""


class Format(ABC):
    """Reads the lines of a trace in their order. What is not understood is counted, and the first
    few of it are told."""

    name: str
    has_whole_seconds = False
    """Whether times are whole seconds, so that requests seem to come all at once."""

    def __init__(self) -> None:
        self.skipped = 0
        self.told: list[str] = []
        self._lines = 0
        self._known: dict[Any, Asked] = {}

    @abstractmethod
    def take(self, line: bytes) -> Taken:
        """What is in *line*; `ValueError` or `OverflowError` if it is not understood."""

    @abstractmethod
    def asked(self, alike: Any) -> Asked:
        """The request of the lines of which `take` gave *alike*."""

    def events(self, lines: list[bytes]) -> list[Event]:
        """The requests in *lines*."""
        known, take = self._known, self.take
        found: list[Event] = []
        for place, line in enumerate(lines, start=self._lines + 1):
            try:
                at_ns, alike, took_ns = take(line)
                asked = known.get(alike)
                if asked is None:
                    asked = self._new(alike)
            except (ValueError, OverflowError) as error:  # the latter for numbers without end
                self._skip(line, place, error)
                continue
            found.append((at_ns, asked, took_ns))
        self._lines += len(lines)
        return found

    def _new(self, alike: Any) -> Asked:
        asked = self.asked(alike)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[alike] = asked
        return asked

    def _skip(self, line: bytes, number: int, error: Exception) -> None:
        if not line.strip():
            return
        self.skipped += 1
        if len(self.told) < _MOST_TOLD:
            why = str(error) if isinstance(error, BrokenLineError) else "it is not understood"
            self.told.append(f"line {number}: {why}"[:_LONGEST_TOLD])
