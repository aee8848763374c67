"""What a part of an app allows its callers: limits, whose they are, what a request costs.

An `Allowance` is to code what a rule is to a policy, and is asked of the store in the same way. It
may be said in functions of the request: these are called with the request as the framework has it,
and may be async where the app is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_network
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
from uuid import UUID

from headgate.decision import HeaderMode, OnFailure
from headgate.engine.plan import RulePlan, plan_rule
from headgate.engine.rule import CompiledRule, Mode
from headgate.engine.stack import Limits, read_limits
from headgate.errors import KeyInvalidError, OptionError, UsageError
from headgate.limits import Concurrency, Limit, parse_limits
from headgate.policy.identity import Identifier, hashed
from headgate.policy.identity.parts import spelled
from headgate.policy.loader.identity import A_NAME, NAME
from headgate.policy.model import AddressSource, Identity, OnStoreFailure
from headgate.stores.base import checked_cost
from headgate.stores.operations import Check
from headgate.units import duration_ns

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from ipaddress import IPv4Network, IPv6Network

    from headgate.engine.request import Request
    from headgate.integrations.passage import Responded
    from headgate.units import Seconds


# From what a key function returns to the key of a counter.
#
# A key function says whose counter it is: `"user-42"`, `42`, a UUID, or several of them as a tuple.
# What it returns never collides with anything else, however odd it is: it is spelled as keys of
# rules are (`headgate.policy.identity`). Who is nobody (None or an empty text) is not let off: the
# caller's address stands in, under a name that no key function can return.


One = str | int | UUID
KeyValue = One | tuple[One | None, ...] | None
"""Whose counter it is; None: the caller did not say who it is."""

LONGEST_SHOWN: Final = 90
"""How long a name is that clients are told; there may be a number after it."""

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WHO: Final = "expected text, a whole number, a UUID, a tuple of these, or None for the address"


def key_of(value: object, stand_in: Callable[[], str]) -> str:
    """The key that *value* stands for. *stand_in* is asked for that of who is nobody."""
    if isinstance(value, tuple):
        parts = [_spelled(part) for part in value]
        if not any(parts):
            return f"!{stand_in()}"
        return "&".join(part or f"!{stand_in()}" for part in parts)
    return _spelled(value) or f"!{stand_in()}"


def _spelled(value: object) -> str | None:
    if isinstance(value, str):
        return spelled(value) if value else None
    if value is None:
        return None
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return spelled(str(value))
    raise KeyInvalidError(f"the key function returned {value!r}; {_WHO}")


def shown_name(text: str) -> str:
    """*text*, the name of something in an app, as clients may be told it."""
    return _ODD.sub("-", text)[:LONGEST_SHOWN].strip("-.") or "limit"


def free_name(name: str, taken: Container[str | None]) -> str:
    """*name*, or with the first number from 2 after it that makes it one that is not *taken*."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


class RequestKey:
    """A key function of Headgate's own `Request`, whatever the requests of the framework are."""

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
    """A key function: the client's address.

    Headers are believed only as far as *trusted_proxies* (addresses or networks) sent them.
    A peer on a Unix socket is 127.0.0.1. Of IPv6, a /64 is one caller.
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

    Who does not send it, or sends it empty, is counted by address.
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


class Names(NamedTuple):
    """What an allowance is called: to clients, and in the store.

    In the store the first character tells what it is called after, so that a name that was given
    (`@`), a route (`/`), a function (`:`) and a rule (a letter or digit) never share a counter.
    """

    shown: str
    counter: str


Values = tuple[Names, str, int, tuple[Limit, ...]]
"""The names of an allowance, and the key, the cost and the limits that it has for a request."""


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
    own_names: Names = field(init=False, repr=False)
    """What it is called if it was given a name."""

    def __post_init__(self) -> None:
        given = self.limits
        fixed = None if callable(given) and not isinstance(given, Limit) else read_limits(given)
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "ttl_ns", duration_ns(self.ttl, "ttl"))
        object.__setattr__(self, "own_names", Names(str(self.name), f"@{self.name}"))
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
    def has_one_plan(self) -> bool:
        """True if all requests of one key and cost can share a plan."""
        limits = self.fixed
        if limits is None or self.is_settled_later:
            return False
        return not any(isinstance(limit, Concurrency) for limit in limits)

    @property
    def is_static(self) -> bool:
        """True if no function of the app has a say in it before a request is decided."""
        functions = (self.key, self.exempt_when)
        return self.fixed is not None and isinstance(self.cost, int) and not any(functions)

    def refuse_async(self) -> None:
        """Raise `UsageError` if a function is async, which only apps that are so can wait for."""
        for option in ("limits", "key", "cost", "exempt_when"):
            refuse_async(option, getattr(self, option))

    def ask(
        self, request: Q, *, names: Names, own_key: OwnKey, address: Callable[[], str]
    ) -> Asking[Values | None]:
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
) -> tuple[CompiledRule, Groups]:
    """What is the same for all callers: the rule that an allowance is, and its counters."""
    rule = CompiledRule(names.shown, mode, headers, OnFailure(on_store_failure))
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
