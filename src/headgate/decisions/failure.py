"""What to decide when the store cannot: the one place where open and closed are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, get_args

from headgate.decisions.combine import combine
from headgate.decisions.decision import Concluded, Decision
from headgate.errors import OptionError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.limits import Limit

FailurePolicy = Literal["fail_open", "fail_closed", "local"]

RETRY_AFTER_FAILURE_NS: Final = SECOND
"""What a caller refused for want of a store is told to wait: nobody knows better."""


@dataclass(frozen=True, slots=True)
class OnFailure:
    """What a limit does while the store is gone.

    *mode* `fail_open` admits, but in each process no more than *share* of the limit; `local` is the
    same on purpose: a share of the limit goes on being enforced; `fail_closed` refuses. After
    *open_ns* without the store a limit that fails open does what *then* says instead; None: it
    stays open.
    """

    mode: FailurePolicy = "fail_open"
    share: Fraction = Fraction(1)
    open_ns: int | None = None
    then: Literal["fail_closed", "local"] = "fail_closed"

    def __post_init__(self) -> None:
        checked_policy(self.mode)
        if not 0 < self.share <= 1:
            raise OptionError(f"share is {self.share}; expected above 0, up to 1")
        if self.open_ns is not None and (self.open_ns < 0 or self.mode != "fail_open"):
            raise OptionError("max_fail_open is for fail_open, and at least 0")


def checked_policy(policy: str) -> FailurePolicy:
    """*policy* if it is one; else an `OptionError` that lists them."""
    for known in get_args(FailurePolicy):
        if policy == known:
            return known  # type: ignore[no-any-return]
    choices = " or ".join(repr(known) for known in get_args(FailurePolicy))
    raise OptionError(f"on_store_failure is {policy!r}; expected {choices}")


def read_on_failure(given: str | OnFailure) -> OnFailure:
    """*given*, a policy or all that goes with one, as the latter."""
    return given if isinstance(given, OnFailure) else OnFailure(checked_policy(given))


def decide_without_store(policy: FailurePolicy, asked: Iterable[tuple[str, Limit]]) -> Decision:
    """The decision for the (key, limit) pairs in *asked* that no store could make.

    Its `source` is the policy, so it is never mistaken for a plain pass or a denial.
    """
    is_open = policy == "fail_open"
    return combine(
        [
            Concluded(
                key,
                limit,
                allowed=is_open,
                remaining=limit.quota if is_open else 0,
                retry_after_ns=0 if is_open else RETRY_AFTER_FAILURE_NS,
                reset_after_ns=0,
                source=policy,
            )
            for key, limit in asked
        ]
    )
