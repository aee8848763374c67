"""Where a limit that moves begins, and what it never leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.errors import OptionError

_USUAL_START: Final = 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """The lowest and the highest that a limit may be."""

    least: int
    most: int

    def __post_init__(self) -> None:
        for name, value in (("least", self.least), ("most", self.most)):
            if not _is_whole(value) or value < 1:
                raise OptionError(f"{name} is {value!r}; expected a whole number of at least 1")
        if self.most < self.least:
            raise OptionError(f"most is {self.most}, below least, which is {self.least}")

    def start(self, initial: int | None) -> float:
        """Where the limit begins: at *initial*, or at 20 as far as the bounds allow."""
        if initial is None:
            return self.held(_USUAL_START)
        if not _is_whole(initial):
            raise OptionError(f"initial is {initial!r}; expected a whole number")
        if not self.least <= initial <= self.most:
            raise OptionError(f"initial is {initial}; expected from {self.least} to {self.most}")
        return float(initial)

    def held(self, limit: float) -> float:
        """*limit*, or the bound that it has passed."""
        return min(max(limit, self.least), self.most)


def check_share(value: float, what: str, *, above: float = 0.0, up_to: float = 1.0) -> float:
    """*value*, if it is more than *above* and at most *up_to*; else `OptionError`."""
    if not above < value <= up_to:
        raise OptionError(f"{what} is {value!r}; expected more than {above:g}, up to {up_to:g}")
    return float(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
