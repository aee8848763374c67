"""What a part of an app allows its callers: limits, whose they are, what a request costs.

An `Allowance` is to code what a rule is to a policy, and is asked of the store in the same way. It
may be said in functions of the request: these are called with the request as the framework has it,
and may be async where the app is.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    get_args,
)

from headgate.enforcement.naming import KeyValue, RequestKey, key_of
from headgate.engine.plan import RulePlan, plan_rule
from headgate.errors import OptionError, UsageError
from headgate.limits import Concurrency, Limit, parse_limits
from headgate.plan import Limits, read_limits
from headgate.rules.model import HeaderMode, Match, Mode, OnStoreFailure, Rule
from headgate.rules.reading.callers import A_NAME, NAME
from headgate.stores.operations import Check
from headgate.stores.port import checked_cost
from headgate.units import duration_ns

if TYPE_CHECKING:
    from headgate.enforcement.passage import Responded
    from headgate.units import Seconds

Q = TypeVar("Q")
T = TypeVar("T")
Told: TypeAlias = Union[T, Awaitable[T]]  # noqa: UP007 (a TypeVar knows no |)
"""What a function of the request returns: at once, or awaited where the app is async."""

Asking = Generator[object, Any, T]
"""Something that asks for values on its way: it yields what a function returned, and is sent what
that comes to. So the way is written once for apps that block and apps that do not."""

LimitsOf = Callable[[Q], "Told[Limits | None]"]
KeyOf = Callable[[Q], "Told[KeyValue]"]
CostOf = Callable[[Q], "Told[int]"]
ExemptWhen = Callable[[Q], "Told[bool]"]
ChargeWhen = Callable[["Responded"], bool]
OwnKey = Callable[[RequestKey | None], object]

_ANY: Final = Match()
_NOBODY: Final = ("global",)


class Names(NamedTuple):
    """What an allowance is called: to clients, and in the store.

    In the store the first character tells what it is called after, so that a name that was given
    (`@`), a route (`/`), a function (`:`) and a rule (a letter or digit) never share a counter.
    """

    shown: str
    counter: str


class LimitOptions(TypedDict, total=False):
    """The options of an `Allowance` besides its limits, for those who pass them on."""

    key: KeyOf[Any] | None
    cost: int | CostOf[Any]
    name: str | None
    exempt_when: ExemptWhen[Any] | None
    charge_when: ChargeWhen | None
    is_estimate: bool
    ttl: Seconds
    mode: Mode
    on_store_failure: OnStoreFailure
    headers: HeaderMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(Generic[Q]):
    """So much for each *key*; true for as long as the app runs.

    *limits*: text, a Limit or several; or a function of the request, for whom None is no limit.
    *key*: whose counter; the client's address if not said. *cost*: a whole number, or a function.
    *name*: what clients are told and what the counter is called; parts of an app that give the same
    name share one counter. *exempt_when*: who is let through unasked.

    *charge_when*: which outcomes count, by status, say. The cost is held until then, so that many
    at once cannot slip through. *is_estimate*: the cost is held, and the app reports the real one;
    if it does not, what was held is charged. A hold that nobody settles lapses after *ttl* seconds.

    *mode*, *on_store_failure*, *headers*: as in a rule.
    """

    limits: Limits | LimitsOf[Q]
    key: KeyOf[Q] | None = None
    cost: int | CostOf[Q] = 1
    name: str | None = None
    exempt_when: ExemptWhen[Q] | None = None
    charge_when: ChargeWhen | None = None
    is_estimate: bool = False
    ttl: Seconds = 60
    mode: Mode = "enforce"
    on_store_failure: OnStoreFailure = "fail_open"
    headers: HeaderMode = "on"
    fixed: tuple[Limit, ...] | None = field(init=False, repr=False)
    """The limits if they do not depend on the request."""
    ttl_ns: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = self.limits
        fixed = None if callable(given) and not isinstance(given, Limit) else read_limits(given)
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "ttl_ns", duration_ns(self.ttl, "ttl"))
        if not callable(self.cost):
            checked_cost(self.cost)
        _check_name(self.name)
        for option in ("key", "exempt_when", "charge_when"):
            check_function(option, getattr(self, option))
        if inspect.iscoroutinefunction(self.charge_when):
            raise OptionError("charge_when is an async function; expected a plain one")
        _check_choice("mode", self.mode, get_args(Mode))
        _check_choice("on_store_failure", self.on_store_failure, get_args(OnStoreFailure))
        _check_choice("headers", self.headers, get_args(HeaderMode))

    @property
    def is_settled_later(self) -> bool:
        """Whether what is charged is known only at the end of the request."""
        return self.is_estimate or self.charge_when is not None

    @property
    def own_names(self) -> Names:
        """What it is called if it was given a name."""
        return Names(str(self.name), f"@{self.name}")

    def refuse_async(self) -> None:
        """Raise `UsageError` if a function is async, which only apps that are so can wait for."""
        for option in ("limits", "key", "cost", "exempt_when"):
            refuse_async(option, getattr(self, option))

    def ask(
        self, request: Q, *, names: Names, own_key: OwnKey, address: Callable[[], str]
    ) -> Asking[tuple[Names, str, int, tuple[Limit, ...]] | None]:
        """Whose counter *request* is to be counted on, and how; None if it is exempt.

        *own_key* asks a key function of Headgate's own, or that of the gate if there is none.
        """
        if self.mode == "off":
            return None
        if self.exempt_when is not None and (yield self.exempt_when(request)):
            return None
        limits = self.fixed
        if limits is None:
            limits = _read((yield self._limits_of(request)))
            if limits is None:
                return None
        whose = self.key
        if whose is None or isinstance(whose, RequestKey):
            value = yield own_key(whose)
        else:
            value = yield whose(request)
        key = key_of(value, address)
        cost = self.cost
        if not isinstance(cost, int):
            cost = checked_cost((yield cost(request)), "what the cost function returned")
        return (names if self.name is None else self.own_names), key, cost, limits

    def _limits_of(self, request: Q) -> object:
        function = self.limits
        assert callable(function)  # noqa: S101 (mypy: `fixed` is None for functions alone)
        return function(request)

    def plan(
        self, names: Names, key: str, cost: int, limits: tuple[Limit, ...], namespace: str
    ) -> RulePlan:
        """What to ask the store."""
        rule, groups = _prepared(
            names, limits, self.mode, self.on_store_failure, self.headers, namespace
        )
        checks = [
            Check(group, key, limit, 1 if has_slots else cost) for group, limit, has_slots in groups
        ]
        return RulePlan(rule, key, cost, limits, tuple(checks))


Groups = tuple[tuple[str, Limit, bool], ...]
"""Each limit with the name of its counters, and whether it has slots."""


@lru_cache(maxsize=4096)
def _prepared(
    names: Names,
    limits: tuple[Limit, ...],
    mode: Mode,
    on_store_failure: OnStoreFailure,
    headers: HeaderMode,
    namespace: str,
) -> tuple[Rule, Groups]:
    """What is the same for all callers: the rule that an allowance is, and its counters."""
    rule = Rule(
        names.shown,
        _ANY,
        _NOBODY,
        MappingProxyType({None: limits}),
        mode=mode,
        on_store_failure=on_store_failure,
        headers=headers,
    )
    checks = plan_rule(rule, limits, "", 1, namespace, counter=names.counter).checks
    slots = (isinstance(check.limit, Concurrency) for check in checks)
    return rule, tuple((c.group, c.limit, s) for c, s in zip(checks, slots, strict=True))


def _read(limits: object) -> tuple[Limit, ...] | None:
    """What a function returned as the limits of a caller."""
    if limits is None:
        return None
    if isinstance(limits, str):
        return _parsed(limits)
    return read_limits(limits)  # type: ignore[arg-type]  # which says what is wrong with it


_parsed = lru_cache(maxsize=1024)(parse_limits)


def _check_name(name: object) -> None:
    if name is not None and not (isinstance(name, str) and NAME.fullmatch(name)):
        raise OptionError(f"name is {name!r}; expected {A_NAME}")


def refuse_async(option: str, given: object) -> None:
    """Raise `UsageError` if *given* is an async function."""
    if inspect.iscoroutinefunction(given):
        raise UsageError(
            f"{option} is an async function, and this app is not async: make it a plain one"
        )


def check_function(option: str, given: object) -> None:
    """Raise `OptionError` if what was *given* for *option* is no function."""
    if given is not None and not callable(given):
        raise OptionError(f"{option} is {given!r}; expected a function of the request")


def _check_choice(option: str, given: object, words: tuple[object, ...]) -> None:
    if given not in words:
        expected = ", ".join(repr(word) for word in words)
        raise OptionError(f"{option} is {given!r}; expected one of {expected}")
