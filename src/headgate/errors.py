"""Every error Headgate raises.

    HeadgateError
    ├── LimitError (ValueError)           a limit whose numbers make no sense
    │   └── NotationError                 a text that is not a limit
    ├── CostError (ValueError)            a cost or amount that is not an integer >= 0
    ├── KeyInvalidError (ValueError)      a key that is not a non-empty string
    ├── OptionError (ValueError)          a timeout, clock, policy or size that makes no sense
    ├── PolicyError (ValueError)          rules that cannot be read (`headgate.policy.problems`)
    ├── UsageError (TypeError)            a verb that this kind of limit does not know
    ├── StoreURLError (ValueError)        a store URL nobody can open
    ├── StoreError                        the store could not decide
    ├── SettledError                      a reservation or slot that is no longer open
    ├── ControlError                      a change of rules that was not made (`headgate.control`)
    │   ├── ConflictError, StaleVersionError, UnknownRuleError, UnknownRevisionError, ...
    │   ├── ReadOnlyError                 rules that cannot be changed where they are kept
    │   └── StorageError                  the place where they are kept could not be asked
    ├── SettingsError                     settings that make no sense (`headgate.config`)
    ├── ListenError, StartError           a service that does not start (`headgate.service`)
    ├── GatewayError                      a gateway that does not run (`headgate.gateway.processes`)
    ├── CallError                         a gRPC call that ends with a status (`headgate.service`)
    ├── MissingPackageError (ModuleNotFoundError)   an extra of Headgate that is not installed
    └── RateLimitedError                  raised by the decorator alone (`headgate.decisions`)
    HeadgateWarning (UserWarning)         something that works, and that its user will regret

A denial is not an error: it is a `Decision` that is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MissingPackageError", "not_installed"]


StoreFault = Literal[
    "unavailable",  # no reason is known
    "unreachable",  # no connection, or it broke
    "timeout",  # no answer within the deadline; what was asked may have been done, once
    "loading",  # the server has just started and is reading its data
    "readonly",  # a replica, or a primary that has been demoted
    "out_of_memory",  # the server may not take more memory
    "busy",  # a script of somebody else's does not end
    "denied",  # a wrong password, or a user who may not do this
    "cluster_down",  # a cluster with slots that nobody serves
    "refused",  # any other error that the server answered with
    "closed",  # the store was closed by its owner
    "circuit_open",  # it has been failing, and is left alone for a moment; nothing was asked
]
"""Why a store could not decide."""

STORE_FAULTS: Final[tuple[StoreFault, ...]] = get_args(StoreFault)

_OPEN_FAULTS: Final[frozenset[StoreFault]] = frozenset(("unavailable", "unreachable", "timeout"))
"""After which what was asked may have been done, unless the error says that it was not."""


class HeadgateError(Exception):
    """The base of all errors raised by Headgate."""


class LimitError(HeadgateError, ValueError):
    """A limit whose numbers make no sense."""


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
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in self.text)
        pointer = " " * self.position + "^"
        wanted = "\n  expected " + " or ".join(self.expected) if self.expected else ""
        return f"not a limit: {self.problem}\n  {shown}\n  {pointer}{wanted}"


class CostError(HeadgateError, ValueError):
    """A cost or an amount that is not an integer of at least zero."""


class KeyInvalidError(HeadgateError, ValueError):
    """A key that is not a non-empty string."""


class OptionError(HeadgateError, ValueError):
    """A timeout, a clock, a failure policy or a size that makes no sense."""


class UsageError(HeadgateError, TypeError):
    """A verb was used on a limit or a function that it cannot serve."""


class StoreURLError(HeadgateError, ValueError):
    """A store URL that nobody can open."""


class StoreError(HeadgateError):
    """The store could not decide: it is down, slow, full or refusing. Never a denial.

    `reason` is a word for it, one of `STORE_FAULTS`: for metrics, and for whoever must react.
    `is_undone`: whether what was asked was surely not done; if not said, it goes by the reason.
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
        """The same to be raised elsewhere: exceptions are not for sharing. *is_undone* if given."""
        is_undone = self.is_undone if is_undone is None else is_undone
        own = StoreError(str(self), reason=self.reason, is_undone=is_undone)
        own.__cause__ = self.__cause__
        return own


class SettledError(HeadgateError):
    """A reservation or a slot that has been settled, given back or refused already."""


class MissingPackageError(HeadgateError, ModuleNotFoundError):
    """A part of Headgate needs a package that is not installed; the message says how to get it."""


def not_installed(extra: str, error: ModuleNotFoundError) -> MissingPackageError:
    """The error to raise for *error*, which says which *extra* of Headgate to install."""
    return MissingPackageError(
        f"this part of Headgate needs the package {error.name!r}: pip install 'headgate[{extra}]'",
        name=error.name,
    )


class HeadgateWarning(UserWarning):
    """Something that works, and that its user will regret."""
