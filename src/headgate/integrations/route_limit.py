"""Limits of an app or a route, declared in code: limits, keys, costs.

A `RouteLimit` is to code what a rule is to a policy. Limits, key and cost may be functions of the
request: they are called with the request of the framework, and may be async in an async app.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_network
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    get_args,
)
from uuid import UUID

from headgate.decision import HeaderMode, OnFailure
from headgate.engine.plan import CompiledRule, Mode, RulePlan, plan_rule
from headgate.engine.stack import Limits, read_limits
from headgate.errors import KeyInvalidError, OptionError, UsageError, nearest
from headgate.limits import Concurrency, Limit, parse_limits
from headgate.policy.fields import A_NAME, NAME
from headgate.policy.identity import Identifier, hashed
from headgate.policy.identity.parts import spelled
from headgate.policy.model import AddressSource, Identity, OnStoreFailure
from headgate.runtime.effects import Effect
from headgate.stores.base import checked_cost
from headgate.stores.operations import Check
from headgate.units import duration_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable
    from ipaddress import IPv4Network, IPv6Network

    from headgate.engine.request import Request
    from headgate.integrations.check_result import CompletedResponse
    from headgate.runtime.effects import Effects
    from headgate.units import Seconds


# Functions of an app, which may be async.


PLAIN: Final = frozenset({str, int, bool, tuple, list, type(None)})
"""Types of most results of functions: none of them is awaitable."""


class Await(Effect):
    """Await the result of a function of the app; an error in an app that is not async."""

    __slots__ = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = result

    def perform(self) -> NoReturn:
        if (close := getattr(self.result, "close", None)) is not None:
            close()  # or Python warns that it was never awaited
        raise UsageError(
            "a function for a limit is async, and this app is not async: make it a plain one"
        )

    async def aperform(self) -> Any:
        return await self.result


def resolved(result: Any) -> Effects[Any]:
    """The *result* of a function of the app, awaited if need be."""
    if type(result) not in PLAIN and inspect.isawaitable(result):
        return (yield Await(result))
    return result


# From the result of a key function to the key of a counter.
#
# A key function returns the owner of the counter: `"user-42"`, `42`, a UUID, or several of them as
# a tuple. Keys are spelled as those of rules are (`headgate.policy.identity`), so that no two
# results collide. None and "" fall back to the client IP, under a name that no key function can
# return: an anonymous caller is limited too.


One = str | int | UUID
KeyValue = One | tuple[One | None, ...] | None
"""The owner of the counter; None: the client IP."""

LONGEST_SHOWN: Final = 90
"""The longest name in headers, without the number that may follow it."""

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_KEYS: Final = "expected text, an integer, a UUID, a tuple of these, or None for the client IP"


def key_of(value: object, address: Callable[[], str]) -> str:
    """The key of the result *value* of a key function; None and "" fall back to *address*."""
    if isinstance(value, tuple):
        parts = [_spelled(part) for part in value]
        if not any(parts):
            return f"!{address()}"
        return "&".join(part or f"!{address()}" for part in parts)
    return _spelled(value) or f"!{address()}"


def _spelled(value: object) -> str | None:
    if isinstance(value, str):
        return spelled(value) if value else None
    if value is None:
        return None
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return spelled(str(value))
    raise KeyInvalidError(f"the key function returned {value!r}; {_KEYS}")


def shown_name(text: str) -> str:
    """*text*, a name in the code of an app, as headers show it."""
    return _ODD.sub("-", text)[:LONGEST_SHOWN].strip("-.") or "limit"


def free_name(name: str, taken: Container[str | None]) -> str:
    """*name*, with the first number from 2 that makes it free if it is *taken*."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


class RequestKey:
    """A key function that reads a `Request`, whatever the request of the framework is."""

    __slots__ = ("_find", "_name")

    def __init__(self, name: str, find: Callable[[Request], str | None]) -> None:
        self._name = name
        self._find = find

    def __call__(self, request: Request) -> str | None:
        return self._find(request)

    def __repr__(self) -> str:
        return self._name


def by_address(
    *,
    trusted_proxies: Iterable[str] = (),
    header: str = "x-forwarded-for",
    ipv4_prefix: int = 32,
    ipv6_prefix: int = 64,
) -> RequestKey:
    """A key function: the client IP.

    *header* is read only as far as *trusted_proxies* (addresses or networks) sent it. A peer on a
    Unix socket is 127.0.0.1. An IPv6 /64 is one caller.
    """
    if isinstance(trusted_proxies, str):
        raise OptionError(
            f"trusted_proxies is {trusted_proxies!r}; expected a list, as ['10.0.0.0/8']"
        )
    source = AddressSource(
        trusted_proxies=tuple(_network(text) for text in trusted_proxies),
        ipv4_prefix=_prefix(ipv4_prefix, 32, "ipv4_prefix"),
        ipv6_prefix=_prefix(ipv6_prefix, 128, "ipv6_prefix"),
        header=header.lower(),
    )
    find = Identifier(Identity(address=source)).find

    def address(request: Request) -> str:
        return find(request).ip

    return RequestKey("by_address()", address)


def by_header(name: str, *, salt: bytes = b"", is_secret: bool = True) -> RequestKey:
    """A key function: the value of a header, hashed unless it is no secret.

    A request without it, or with an empty one, falls back to the client IP.
    """
    field = name.lower()

    def value(request: Request) -> str | None:
        found = (request.header(field) or "").strip(" \t")
        if not found:
            return None
        return hashed(found, salt)[1:] if is_secret else found

    return RequestKey(f"by_header({name!r})", value)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise OptionError(
            f"trusted_proxies: {text!r} is no address or network; expected such as '10.0.0.0/8'"
        ) from error


def _prefix(length: int, most: int, name: str) -> int:
    if type(length) is not int or not 1 <= length <= most:
        raise OptionError(f"{name} is {length!r}; expected a whole number from 1 to {most}")
    return length


Q = TypeVar("Q")
T = TypeVar("T")
MaybeAsync: TypeAlias = Union[T, Awaitable[T]]  # noqa: UP007 (a TypeVar knows no |)
"""The result of a function of the request: at once, or awaited in an async app."""

LimitsOf = Callable[[Q], "MaybeAsync[Limits | None]"]
KeyOf = Callable[[Q], "MaybeAsync[KeyValue]"]
CostOf = Callable[..., "MaybeAsync[int]"]
ExemptWhen = Callable[..., "MaybeAsync[bool]"]
ChargeWhen = Callable[["CompletedResponse"], bool]


class Names(NamedTuple):
    """The names of a route limit: in headers, and of its counters.

    The first character of a counter's name says what it is named after, so that a given name (`@`),
    a route (`/`), a function (`:`) and a rule (a letter or digit) never share a counter.
    """

    shown: str
    counter: str


Values = tuple[str, int, tuple[Limit, ...]]
"""The key, cost and limits of a route limit for a request."""


class KeylessOptions(TypedDict, total=False):
    """The options of a `RouteLimit` besides its limits and its key. Functions take the framework's
    request."""

    cost: int | CostOf
    name: str | None
    exempt_when: ExemptWhen | None
    charge_when: ChargeWhen | None
    is_estimate: bool
    ttl: Seconds
    mode: Mode
    on_store_failure: OnStoreFailure
    headers: HeaderMode


class LimitOptions(KeylessOptions, total=False):
    """The options of a `RouteLimit` besides its limits."""

    key: Callable[..., MaybeAsync[KeyValue]] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouteLimit:
    """Limits for each *key*, of a whole app or of a route.

    *limits*: text, a Limit or several; or a function of the request, which returns None for no
    limit. *key*: the owner of the counter, by default the client IP. *cost*: an integer, or a
    function. *name*: the name in headers and of the counter; limits with the same name share one
    counter. *exempt_when*: returns True for requests without this limit.

    *charge_when*: returns True for the responses that are charged, by status, say. The cost is held
    until then, so that concurrent requests cannot exceed the limit. *is_estimate*: the cost is
    held, and the app reports the real one; without a report the held cost is charged. A hold
    expires after *ttl* seconds.

    *mode*, *on_store_failure*, *headers*: as in a rule.
    """

    limits: Limits | LimitsOf[Any]
    key: KeyOf[Any] | None = None
    cost: int | CostOf = 1
    name: str | None = None
    exempt_when: ExemptWhen | None = None
    charge_when: ChargeWhen | None = None
    is_estimate: bool = False
    ttl: Seconds = 60
    mode: Mode = "enforce"
    on_store_failure: OnStoreFailure = "fail_open"
    headers: HeaderMode = "on"
    fixed: tuple[Limit, ...] | None = field(init=False, repr=False)
    """The limits, if they do not depend on the request."""
    ttl_ns: int = field(init=False, repr=False)
    has_one_plan: bool = field(init=False, repr=False)
    """True if all requests of one key and cost can share a plan."""
    is_static: bool = field(init=False, repr=False)
    """True if it calls no function of the app before a request is decided."""

    def __post_init__(self) -> None:
        given = self.limits
        fixed = None if callable(given) and not isinstance(given, Limit) else read_limits(given)
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "ttl_ns", duration_ns(self.ttl, "ttl"))
        has_slots = fixed is not None and any(isinstance(one, Concurrency) for one in fixed)
        has_one_plan = fixed is not None and not has_slots and not self.is_settled_later
        object.__setattr__(self, "has_one_plan", has_one_plan)
        is_static = not any((self.key, self.exempt_when, callable(self.cost), fixed is None))
        object.__setattr__(self, "is_static", is_static)
        if not callable(self.cost):
            checked_cost(self.cost)
        name: object = self.name
        if name is not None and not (isinstance(name, str) and NAME.fullmatch(name)):
            raise OptionError(f"name is {name!r}; expected {A_NAME}")
        for option in ("limits", "cost"):
            if callable(function := getattr(self, option)) and not isinstance(function, Limit):
                check_function(option, function)
        for option in ("key", "exempt_when"):
            check_function(option, getattr(self, option))
        check_function("charge_when", self.charge_when, "response")
        if inspect.iscoroutinefunction(self.charge_when):
            raise OptionError("charge_when is an async function; expected a plain one")
        _check_choice("mode", self.mode, get_args(Mode))
        _check_choice("on_store_failure", self.on_store_failure, get_args(OnStoreFailure))
        _check_choice("headers", self.headers, get_args(HeaderMode))

    @property
    def is_settled_later(self) -> bool:
        """True if the charge is known only at the end of the request."""
        return self.is_estimate or self.charge_when is not None

    def check_blocking(self) -> None:
        """Raise `UsageError` if a function is async: the app cannot await it."""
        for option in ("limits", "key", "cost", "exempt_when"):
            check_blocking(option, getattr(self, option))

    def values(
        self,
        native: Any,
        own_key: Callable[[RequestKey | None], object],
        address: Callable[[], str],
    ) -> Effects[Values | None]:
        """The key, cost and limits of *native*, the request of the framework; None if exempt.

        *own_key* calls a key function that reads a `Request`, or that of the limiter if None.
        """
        if self.mode == "off":
            return None
        if self.exempt_when is not None and (yield from resolved(self.exempt_when(native))):
            return None
        limits = self.fixed
        if limits is None:
            function: Any = self.limits
            limits = _read((yield from resolved(function(native))))
            if limits is None:
                return None
        key_function = self.key
        if key_function is None or isinstance(key_function, RequestKey):
            value = own_key(key_function)
        else:
            value = key_function(native)
        if type(value) not in PLAIN:
            value = yield from resolved(value)
        key = key_of(value, address)
        cost = self.cost
        if not isinstance(cost, int):
            value = yield from resolved(cost(native))
            cost = checked_cost(value, "what the cost function returned")
        return key, cost, limits

    def plan(
        self, names: Names, key: str, cost: int, limits: tuple[Limit, ...], namespace: str
    ) -> RulePlan:
        """The plan of the values for a request."""
        rule, groups = _compiled(
            names, limits, self.mode, self.on_store_failure, self.headers, namespace
        )
        checks = [
            Check(group, key, limit, 1 if has_slots else cost) for group, limit, has_slots in groups
        ]
        return RulePlan(rule, key, cost, limits, tuple(checks))


class NamedLimits:
    """The limits of an app or of a route, each with its names; checked together, all or nothing.

    Equal to itself alone: it is a part of the keys of cached plans. `named_limits` makes it.
    """

    __slots__ = ("each", "has_one_plan", "is_static")

    def __init__(self, each: Iterable[tuple[RouteLimit, Names]]) -> None:
        self.each = tuple(each)
        limits = [limit for limit, _ in self.each]
        self.has_one_plan = all(limit.has_one_plan for limit in limits)
        """True if all requests of the same keys and costs can share a plan."""
        self.is_static = self.has_one_plan and all(limit.is_static for limit in limits)
        """True if all requests of a client IP can share a plan."""


@lru_cache(maxsize=4096)
def named_limits(
    limits: tuple[RouteLimit, ...], shown: str, counter: str, first: int = 0, before: int = 0
) -> NamedLimits:
    """Name *limits*. One without a name is called *shown*, with a number after the first; its
    counter is *counter* with its number among the limits.

    *first* is the number of the first limit. *before* limits called *shown* came before.
    """
    named = []
    for number, limit in enumerate(limits, first):
        if limit.name is not None:
            named.append((limit, Names(limit.name, f"@{limit.name}")))
            continue
        before += 1
        name = shown if before == 1 else f"{shown}-{before}"
        named.append((limit, Names(name, f"{counter}#{number}")))
    return NamedLimits(named)


Groups = tuple[tuple[str, Limit, bool], ...]
"""The group of counters of each limit, the limit, and True if it has slots."""


@lru_cache(maxsize=4096)
def _compiled(
    names: Names,
    limits: tuple[Limit, ...],
    mode: Mode,
    on_store_failure: OnStoreFailure,
    headers: HeaderMode,
    namespace: str,
) -> tuple[CompiledRule, Groups]:
    """The part that is the same for all callers: the rule of a route limit, and its counters."""
    rule = CompiledRule(names.shown, mode, headers, OnFailure(on_store_failure))
    checks = plan_rule(rule, limits, "", 1, namespace, counter=names.counter).checks
    slots = (isinstance(check.limit, Concurrency) for check in checks)
    return rule, tuple((c.group, c.limit, s) for c, s in zip(checks, slots, strict=True))


def _read(limits: object) -> tuple[Limit, ...] | None:
    """The limits that a function returned for a caller."""
    if limits is None:
        return None
    if isinstance(limits, str):
        return _parsed(limits)
    return read_limits(limits)  # type: ignore[arg-type]  # which reports anything else


_parsed = lru_cache(maxsize=1024)(parse_limits)


def check_names(given: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise `UsageError` if *given* has a name that is not among the *known* options."""
    for name in given:
        if name not in known:
            near = nearest(str(name), known)
            hint = f"did you mean {near!r}?" if near else f"expected {', '.join(sorted(known))}"
            raise UsageError(f"{where} has no option {name!r}; {hint}")


def check_blocking(option: str, given: object) -> None:
    """Raise `UsageError` if *given* is an async function."""
    if inspect.iscoroutinefunction(given):
        raise UsageError(
            f"{option} is an async function, and this app is not async: make it a plain one"
        )


def check_function(option: str, given: object, argument: str = "request") -> None:
    """Raise `OptionError` if *given* is not None and no function of one argument."""
    if given is None:
        return
    if not callable(given):
        raise OptionError(f"{option} is {given!r}; expected a function of the {argument}")
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise OptionError(
            f"{option} cannot be called with the {argument} ({error}); "
            f"expected a function of one argument, the {argument}"
        ) from error


def _check_choice(option: str, given: object, words: tuple[object, ...]) -> None:
    if given not in words:
        expected = ", ".join(repr(word) for word in words)
        raise OptionError(f"{option} is {given!r}; expected one of {expected}")
