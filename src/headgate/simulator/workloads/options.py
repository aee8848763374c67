"""What can be said of a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from headgate.errors import OptionError
from headgate.units import SECOND

Retry = Literal["at_once", "backoff", "retry_after"]
"""What a client does that was refused: it asks again at once, after a time that doubles, or when
the answer says."""

RETRIES: Final[tuple[Retry, ...]] = get_args(Retry)
BEGAN_NS: Final = 1_767_225_600 * SECOND
"""When all workloads begin: 2026 does, so windows do too."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is asked, for how long, by whom; what is None is as the workload has it.

    *rate* is requests a second of all *callers* together, retries not counted; *duration* is in
    seconds. The same *seed* makes the same requests. *method*, *path* and *headers* are what every
    request has, in place of what the rules of the policy are for.

    *exponent* says how unequal tenants are; every *every* seconds there is a burst of *factor*
    times the rate for a second; *retry* is what refused clients do, *attempts* times at most.
    """

    rate: float = 100.0
    duration: float | None = None
    callers: int | None = None
    seed: int = 1
    method: str | None = None
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    exponent: float = 1.1
    every: float = 10.0
    factor: float = 10.0
    retry: Retry = "backoff"
    attempts: int = 5

    def __post_init__(self) -> None:
        for name in ("rate", "every", "factor", "exponent"):
            _check(name, getattr(self, name))
        if self.duration is not None:
            _check("duration", self.duration)
        for name in ("callers", "attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; expected at least 1")
        if self.retry not in RETRIES:
            raise OptionError(f"retry is {self.retry!r}; expected one of {', '.join(RETRIES)}")
        if self.path is not None and not self.path.startswith("/"):
            raise OptionError(f"path is {self.path!r}; expected one that begins with /")


def _check(name: str, value: float) -> None:
    if not 0 < value < 1e9:
        raise OptionError(f"{name} is {value!r}; expected a number above 0")
