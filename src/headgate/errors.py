"""Every error Headgate raises.

    HeadgateError
    ├── LimitError (ValueError)           a limit whose numbers make no sense
    │   └── NotationError                 a text that is not a limit
    ├── CostError (ValueError)            a cost or amount that is not an integer >= 0
    ├── KeyInvalidError (ValueError)      a key that is not a non-empty string
    ├── OptionError (ValueError)          a timeout, clock, policy or size that makes no sense
    ├── PolicyError (ValueError)          rules that cannot be read (`headgate.policy.problems`)
    ├── UsageError (TypeError)            an operation that this kind of limit does not support
    ├── StoreURLError (ValueError)        a store URL that is invalid
    ├── StoreError                        the store could not decide
    ├── SettledError                      a reservation or slot that is no longer open
    ├── ControlError                      a change of rules that was not made (`headgate.control`)
    │   ├── ConflictError, StaleVersionError, UnknownRuleError, UnknownRevisionError, ...
    │   ├── ReadOnlyError                 rules that cannot be changed where they are kept
    │   └── SourceError                   their source cannot be reached or read
    ├── SettingsError                     settings that make no sense (`headgate.config`)
    ├── ListenError, StartError           a service that does not start (`headgate.service`)
    ├── GatewayError                      a gateway that does not run (`headgate.gateway.processes`)
    ├── CallError                         a gRPC call that ends with a status (`headgate.service`)
    ├── MissingPackageError (ModuleNotFoundError)   an extra of Headgate that is not installed
    └── RateLimitedError                  raised by the decorator alone (`headgate.decision`)
    HeadgateWarning (UserWarning)         a use that works but is probably a mistake

A denial is not an error: it is a `Decision` that is false.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["MissingPackageError", "not_installed"]


StoreFault = Literal[
    "unavailable",  # no reason is known
    "unreachable",  # no connection, or it broke
    "timeout",  # no answer within the deadline; the operation may have been executed, once
    "loading",  # the server has just started and is reading its data
    "readonly",  # a replica, or a primary that has been demoted
    "out_of_memory",  # the server has reached its memory limit
    "busy",  # another client's script does not end
    "denied",  # a wrong password, or a user without the permission
    "cluster_down",  # a cluster with slots that no node serves
    "refused",  # any other error that the server answered with
    "closed",  # the store was closed by its owner
    "circuit_open",  # the store has been failing; nothing was sent
]
"""Why a store could not decide."""

STORE_FAULTS: Final[tuple[StoreFault, ...]] = get_args(StoreFault)

_OPEN_FAULTS: Final[frozenset[StoreFault]] = frozenset(("unavailable", "unreachable", "timeout"))
"""Faults after which the operation may have been executed, unless `is_undone` is set."""


class HeadgateError(Exception):
    """The base of all errors raised by Headgate."""


class LimitError(HeadgateError, ValueError):
    """A limit whose numbers make no sense."""


_CARET_WIDTH: Final = 72


def pointed_at(text: str, position: int, width: int = _CARET_WIDTH) -> tuple[str, str]:
    """*text* and a line with a caret below *position*, cut to *width* columns, so that neither
    wraps."""
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    if len(shown) >= width:
        start = max(0, min(position - (width - 2) // 2, len(shown) + 1 - width))
        cut = shown[start : start + width - 1]
        shown = ("\N{HORIZONTAL ELLIPSIS}" + cut[1:]) if start else cut
        if start + width - 1 < len(text):
            shown = shown[:-1] + "\N{HORIZONTAL ELLIPSIS}"
        position -= start
    return shown, " " * position + "^"


class NotationError(LimitError):
    """A text that is not a limit.

    `text` is the whole text, `position` the offset of the first character that does not fit,
    `expected` what could have stood there.
    """

    def __init__(self, text: str, position: int, problem: str, expected: Sequence[str]) -> None:
        self.text = text
        self.position = position
        self.problem = problem
        self.expected = tuple(expected)
        super().__init__(text, position, problem, self.expected)

    def __str__(self) -> str:
        line, caret = pointed_at(self.text, self.position)
        wanted = f"\n  {self.wanted}" if self.expected else ""
        return f"not a limit: {self.problem}\n  {line}\n  {caret}{wanted}"

    @property
    def wanted(self) -> str:
        """The alternatives that were possible there, in words."""
        return f"expected {' or '.join(self.expected)}"


class CostError(HeadgateError, ValueError):
    """A cost or an amount that is not an integer of at least zero."""


class KeyInvalidError(HeadgateError, ValueError):
    """A key that is not a non-empty string."""


class OptionError(HeadgateError, ValueError):
    """A timeout, a clock, a failure policy or a size that makes no sense."""


class UsageError(HeadgateError, TypeError):
    """An operation that this kind of limit, or this function, does not support."""


class StoreURLError(HeadgateError, ValueError):
    """A store URL that is invalid."""


class StoreError(HeadgateError):
    """The store could not decide: it is down, slow, full or refusing. Never a denial.

    `reason` is one of `STORE_FAULTS`, for metrics and handlers. `is_undone` is True if the
    operation was certainly not executed; the default follows from the reason.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: StoreFault = "unavailable",
        is_undone: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_undone = reason not in _OPEN_FAULTS if is_undone is None else is_undone

    def copied(self, *, is_undone: bool | None = None) -> StoreError:
        """A copy to raise elsewhere, because threads must not share an exception."""
        is_undone = self.is_undone if is_undone is None else is_undone
        own = StoreError(str(self), reason=self.reason, is_undone=is_undone)
        own.__cause__ = self.__cause__
        return own


class SettledError(HeadgateError):
    """A reservation or a slot that has been already settled, returned or denied."""


class MissingPackageError(HeadgateError, ModuleNotFoundError):
    """A part of Headgate needs a package that is not installed; the message says how to get it."""


def not_installed(extra: str, error: ModuleNotFoundError) -> MissingPackageError:
    """The error to raise for *error*, which says which *extra* of Headgate to install."""
    return MissingPackageError(
        f"this part of Headgate needs the package {error.name!r}: pip install 'headgate[{extra}]'",
        name=error.name,
    )


_LONGEST_WORD: Final = 60
_MOST_WORDS: Final = 128


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of the *known* words that *word* resembles, in any case; None if none does."""
    from difflib import get_close_matches  # late: only mistakes need it

    folded = {one.lower(): one for one in islice(known, _MOST_WORDS)}
    near = get_close_matches(word[:_LONGEST_WORD].lower(), folded, n=1, cutoff=0.55)
    return folded[near[0]] if near else None


class HeadgateWarning(UserWarning):
    """A use that works but is probably a mistake."""
