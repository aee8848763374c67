"""`RequestLimiter`: the limits of an app, and the plan of each of its requests.

A middleware has one, and the routes behind it use it too. `plan` says what applies to a request;
a `RequestContext` checks it. Nothing here waits, apart from reading the policy.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack

from headgate.control import WatchedPolicy
from headgate.engine.holds import charged_after
from headgate.engine.plan import NOTHING_OPEN, CompiledRule, Plan, RulePlan
from headgate.engine.recorder import record_denial
from headgate.engine.use_cases import Engine
from headgate.engine.verdict import Verdict
from headgate.errors import OptionError, UsageError
from headgate.integrations.check_result import LateCharges
from headgate.integrations.exemptions import Exemptions, is_preflight
from headgate.integrations.fair_queues import FairQueues
from headgate.integrations.pressure import AppPressure
from headgate.integrations.route_limit import (
    LimitOptions,
    NamedLimits,
    RouteLimit,
    by_address,
    check_blocking,
    check_function,
    check_names,
    free_name,
    named_limits,
    resolved,
)
from headgate.overload import LoadShedder
from headgate.policy.identity.identifier import UNKNOWN
from headgate.policy.plan_cache import PlanCache
from headgate.responses import ResponseOptions, Throughput
from headgate.responses.answer import queue_denial
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.heartbeat import new_name
from headgate.stores.factory import open_store
from headgate.units import SECOND

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.control import State
    from headgate.engine.plan import Priority, Queueing
    from headgate.engine.request import Request
    from headgate.engine.stack import Limits
    from headgate.integrations.route_limit import ChargeWhen, LimitsOf, Values
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.model import Policy
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store
    from headgate.units import Seconds

    Planned = tuple[RulePlan, RouteLimit]
    """The plan of a route limit, and the limit."""

DEFAULT_NAME: Final = "default"
"""The name of the limits of a whole app."""

NO_CHARGE_WHEN: Final[Mapping[str, ChargeWhen]] = MappingProxyType({})
_NO_PLAN: Final = Plan(0, ())
_SHEDDING: Final = CompiledRule("load-shedding")
"""The rule that a denial of the load shedder names."""


@dataclass(slots=True)
class RequestPlan:
    """The plan of one check of a request, and how the check is settled. Never changed."""

    plan: Plan
    charge_when: Mapping[str, ChargeWhen] = field(default_factory=lambda: NO_CHARGE_WHEN)
    """By the id of a rule: a function that says which responses are charged."""
    ttl_ns: int = 60 * SECOND
    is_known_at_start: bool = False
    """True if the start of the response settles all that is held."""
    after: tuple[RulePlan, ...] = ()
    """The rules that are charged at the end of the request."""
    denial: Verdict | None = None
    """The denial of a request that is not even checked."""

    @property
    def counts_bytes(self) -> bool:
        """True if a rule charges the bytes of the response."""
        return any(one.rule.declared.cost.after.header is None for one in self.after)


class LimiterOptions(LimitOptions, total=False):
    """The options of a `RequestLimiter`: of its limits, and of the app."""

    policy: Policy | str | os.PathLike[str] | None
    limits: Limits | LimitsOf[Request] | None
    exempt: Iterable[str]
    trusted_proxies: Iterable[str]
    store: str | Store
    namespace: str
    salt: bytes
    clock: Clock | None
    responses: ResponseOptions | None
    limits_preflights: bool
    shedder: LoadShedder | None
    debug_secret: bytes


def limiter_of(limiter: RequestLimiter | None, options: LimiterOptions) -> RequestLimiter:
    """*limiter*, or a new one with *options*; `OptionError` if both are given."""
    if limiter is None:
        return RequestLimiter(**options)
    if not isinstance(limiter, RequestLimiter):
        raise OptionError(f"limiter is {limiter!r}; expected a RequestLimiter")
    if options:
        option = min(options)
        raise OptionError(f"{option!r} is an option of the limiter: use RequestLimiter({option}=)")
    return limiter


class RequestLimiter:
    """The limits of an app.

    Either *policy*, the path of a file or directory (watched for changes) or a `Policy`; or
    *limits* with the options of a `RouteLimit`, whose *name* is `default`; or both; or neither, for
    an app whose routes have limits.

    *exempt*: paths without limits, such as `/health` and `/static/**`; *exempt_when*: the same by a
    function. *trusted_proxies*: the proxies whose client IP header counts (a policy says this
    itself). *store* (default `memory://`), *namespace* (default `headgate`), *salt*, *clock*: as
    for `RuleEngine`; they serve the limits of routes too. *responses*: the headers to send.
    *limits_preflights*: True to count CORS preflights with all other requests, not apart.
    *shedder*: a load shedder, which is checked first; the policy says the priority of a request.
    *debug_secret*: the response to a request with a token that was signed with it shows how it was
    decided.
    """

    def __init__(self, **options: Unpack[LimiterOptions]) -> None:
        check_names(options, LimiterOptions.__optional_keys__, "RequestLimiter()")
        policy, limits, key = options.get("policy"), options.get("limits"), options.get("key")
        proxies = _proxies(options.get("trusted_proxies", ()), policy)
        clock, salt = options.get("clock"), options.get("salt", b"")
        self.shedder = options.get("shedder")
        if self.shedder is not None and not isinstance(self.shedder, LoadShedder):
            raise OptionError(f"shedder is {self.shedder!r}; expected a LoadShedder")
        self.exempt_when = options.get("exempt_when")
        check_function("key", key)
        check_function("exempt_when", self.exempt_when)
        self.limit: RouteLimit | None = None
        """The limits of the whole app besides the policy."""
        self._limits = NamedLimits(())
        if limits is not None:
            # exempt_when is about the policy too, and a key about the limits of routes
            names = LimitOptions.__optional_keys__ & options.keys() - {"exempt_when"}
            own: Any = {name: value for name, value in options.items() if name in names}
            self.limit = RouteLimit(limits=limits, **{"name": DEFAULT_NAME, **own})
            self._limits = named_limits((self.limit,), DEFAULT_NAME, "")
        elif options.get("cost", 1) != 1 or options.get("charge_when") is not None:
            option = "charge_when" if options.get("charge_when") else "cost"
            raise OptionError(f"{option} is about limits, and there are none: give limits too")
        self.namespace = options.get("namespace", "headgate")
        self.responses = options.get("responses") or ResponseOptions()
        self.has_usual_headers = self.responses == ResponseOptions()
        self.throughput = Throughput()
        self.exemptions = Exemptions(options.get("exempt", ()))
        self.limits_preflights = options.get("limits_preflights", False)
        self.debug_secret = options.get("debug_secret", b"")
        if not isinstance(self.debug_secret, bytes):
            kind = type(self.debug_secret).__name__
            raise OptionError(f"debug_secret is a {kind}; expected bytes, such as b'...'")
        self.debug_salt = salt or self.debug_secret
        self.now_ns: Clock = clock or time.time_ns
        self.late_charges = LateCharges(self.now_ns)
        self.queues = FairQueues(clock)
        self._key = key
        self._trusts_no_proxy = not proxies and policy is None
        self._by_address = by_address(trusted_proxies=proxies)
        self._plans = PlanCache(0)
        """The plans of limits in code, by limits and key."""
        self._store, self._clock = options.get("store", "memory://"), clock
        self._opened: Store | None = None
        self._opening = threading.RLock()
        self._calls_functions = (
            self.exempt_when is not None
            or self.shedder is not None
            or key is not None
            or not self._limits.is_static
        )
        self._has_static_limits = policy is None and not self._calls_functions
        self.reads_attributes = policy is not None or self._calls_functions
        """True if a rule or a function of the app may read attributes, such as the route."""
        self.has_limits = policy is not None or limits is not None or self.shedder is not None
        """False if only routes have limits."""
        self.is_measured = False
        """True if the times of requests are measured, for `pressure`."""
        self.counts_endpoints = False
        """True if a rule in force counts by endpoint, so that the route has to be known."""
        self.reads_models = False
        """True if a rule in force needs to know what requests ask of a language model."""
        self._simple_policy: CompiledPolicy | None = None
        """The policy in force, if its requests need nothing but one take."""
        self.rules: WatchedPolicy | None = None
        self.pressure: AppPressure | None = None
        if policy is not None:
            self.rules = WatchedPolicy(policy, salt=salt, namespace=self.namespace, clock=clock)
            self.pressure = AppPressure(self, self.rules.scale, clock)
            self.rules.subscribe(self._adopt)

    def _adopt(self, compiled: CompiledPolicy) -> None:
        """Use the policy *compiled* from the next request on."""
        self.queues.adopt(compiled)
        if self.pressure is not None:
            self.pressure.adopt(compiled.policy.pressure)
        self.counts_endpoints = compiled.counts_endpoints
        self.reads_models = compiled.reads_models
        self.is_measured = compiled.policy.pressure is not None
        is_simple = not (
            self._calls_functions
            or self.limit is not None
            or compiled.has_slots
            or compiled.charges_after
            or compiled.has_estimates
            or self.is_measured
        )
        self._simple_policy = compiled if is_simple else None
        with self._opening:
            engine: Engine | None = self.__dict__.get("engine")
            if engine is not None:
                engine.set_accuracies(self, compiled.accuracies)

    def reads_model(self, request: Request) -> bool:
        """True if a rule needs to know what *request* asks of a language model."""
        return self.rules is not None and self.rules.compiled.reads_model(request)

    # ---- the plan of a request -------------------------------------------------------------

    def simple_plan(self, request: Request) -> Plan | None:
        """The plan of *request* if one take is all there is to do; else None, and `plan` says more.

        No function of the app is called, nothing is settled at the end, no queue is waited for.
        """
        if request.method == "OPTIONS":
            return None
        if self.exemptions.patterns and self.exemptions.covers(request.path):
            return None
        if self._has_static_limits:
            return self.simple_route_plan(self._limits, request)
        compiled = self._simple_policy
        if compiled is None:
            return None
        if self.rules is not None and self.rules.files is not None:
            self.rules.watch()
        plan = compiled.plan(request)
        return plan if plan.is_plain and not plan.queues else None

    def simple_route_plan(self, limits: NamedLimits, request: Request) -> Plan | None:
        """The plan of the *limits* of a route, as `simple_plan`; None if `plan_route` says more."""
        if not limits.each:
            return _NO_PLAN
        if self._key is not None or not limits.is_static:
            return None
        known = self._plans.get(self._place(limits, request))
        return None if known is None else known[0]

    def _place(self, limits: NamedLimits, request: Request) -> tuple[NamedLimits, str]:
        """The key of the plan of static *limits*, which all requests of a client IP share."""
        return limits, request.peer if self._trusts_no_proxy else self.address(request)

    def plan(self, request: Request) -> Effects[RequestPlan | None]:
        """The plan of the limits of the whole app for *request*; None if it has none."""
        self.watch()
        if self.exemptions.patterns and self.exemptions.covers(request.path):
            return None
        if self.exempt_when is not None and (yield from resolved(self.exempt_when(request))):
            return None
        if self.shedder is not None:
            denial = self._shed(self.shedder, request)
            if denial is not None:
                return denial
        is_apart = (
            request.method == "OPTIONS" and not self.limits_preflights and is_preflight(request)
        )
        if self.rules is None:
            return (
                yield from self.plan_route(self._limits, request, request, is_preflight=is_apart)
            )
        values = yield from self._values(self._limits, request, request)
        compiled = self.rules.compiled
        plan = compiled.plan(request)
        return request_plan_of(
            plan.revision,
            plan.rules,
            self._planned(self._limits, values),
            queues=plan.queues,
            is_preflight=is_apart,
            charges_after=compiled.charges_after,
            opened=plan.open,
        )

    def plan_route(
        self, limits: NamedLimits, native: Any, request: Request, *, is_preflight: bool = False
    ) -> Effects[RequestPlan | None]:
        """The plan of the *limits* of a route for *native*, the request of a framework.

        *request* is the same as Headgate sees it. A preflight has counters of its own.
        """
        values = yield from self._values(limits, native, request)
        if is_preflight or not limits.has_one_plan:
            return self._plan_limits(limits, values, is_preflight=is_preflight)
        place: tuple[Hashable, ...]
        if limits.is_static and self._key is None:  # found by `simple_route_plan`
            place = self._place(limits, request)
        else:
            place = limits, *[None if one is None else one[:2] for one in values]
        known = self._plans.get(place)
        if known is not None:
            return RequestPlan(known[0], NO_CHARGE_WHEN)
        planned = self._plan_limits(limits, values)
        self._plans.keep(place, _NO_PLAN if planned is None else planned.plan)
        return planned

    def own_plans(self, request: Request) -> Effects[list[RulePlan]]:
        """The plans of the limits of the app besides its policy."""
        values = yield from self._values(self._limits, request, request)
        return [plan for plan, _ in self._planned(self._limits, values)]

    def address(self, request: Request) -> str:
        """The client IP of *request*."""
        if self.rules is None:
            return self._by_address(request) or UNKNOWN
        return self.rules.compiled.identifier.find(request).ip

    def check_blocking(self) -> None:
        """Raise `UsageError` if a function is async: the app cannot await it.

        The store is opened here: the first request may come in several threads at once.
        """
        if self.limit is not None:
            self.limit.check_blocking()
        check_blocking("key", self._key)
        check_blocking("exempt_when", self.exempt_when)
        _ = self.engine

    def _values(
        self, limits: NamedLimits, native: Any, request: Request
    ) -> Effects[list[Values | None]]:
        """The key, cost and limits of each of *limits*; None for one that exempts the request."""

        def own_key(function: Any) -> Any:
            function = function or self._key
            return self.address(request) if function is None else function(request)

        found = []
        for limit, _ in limits.each:
            values = yield from limit.values(native, own_key, lambda: self.address(request))
            found.append(values)
        return found

    def _planned(self, limits: NamedLimits, values: Sequence[Values | None]) -> list[Planned]:
        return [
            (limit.plan(names, *one, self.namespace), limit)
            for (limit, names), one in zip(limits.each, values, strict=True)
            if one is not None
        ]

    def _plan_limits(
        self, limits: NamedLimits, values: Sequence[Values | None], *, is_preflight: bool = False
    ) -> RequestPlan | None:
        return request_plan_of(0, (), self._planned(limits, values), is_preflight=is_preflight)

    def _shed(self, shedder: LoadShedder, request: Request) -> RequestPlan | None:
        """The denial of *request* by *shedder*; None if it is allowed."""
        priority: Priority = "default"
        if self.rules is not None:
            priority = self.rules.compiled.priority_of(request)
        if shedder.allows(priority):
            return None
        wait_ns = round(shedder.retry_after(priority) * SECOND)
        plan = Plan(0, (RulePlan(_SHEDDING, "", 1, (), (), sheds=True),))
        decision = queue_denial(_SHEDDING.id, wait_ns).decision
        denial = record_denial(Verdict(plan, (decision,), allowed=False), "shedder")
        return RequestPlan(plan, denial=denial)

    # ---- store, policy and pressure --------------------------------------------------------

    @cached_property
    def engine(self) -> Engine:
        """The use cases on the store of the app, which is opened on first use."""
        with self._opening:  # two threads must not have two stores
            engine: Engine | None = self.__dict__.get("engine")
            if engine is None:
                if self._opened is None:
                    self._opened = open_store(self._store, self._clock)
                engine = self.__dict__["engine"] = Engine(self._opened)
                if self.rules is not None:
                    engine.set_accuracies(self, self.rules.compiled.accuracies)
            return engine

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """Set the signal *name*, such as the load of a database, to *value* for *lasts* seconds:
        more than 1 is pressure, under a policy with `pressure`."""
        if self.pressure is not None:
            self.pressure.signal(name, value, lasts=lasts)

    def watch(self) -> None:
        """Watch the files of the policy, in this process too if it was forked."""
        if self.rules is not None:
            self.rules.watch()

    @property
    def policy_state(self) -> State | None:
        """The state of the files of the policy; None if they are not watched in this process."""
        return None if self.rules is None else self.rules.state

    def close(self) -> None:
        """Release what the limiter holds open. The next request opens it again."""
        if self.rules is not None:
            self.rules.close()
        self.queues.close()
        if self.pressure is not None:
            self.pressure.close()
        engine: Engine | None = self.__dict__.pop("engine", None)
        if engine is not None:
            drive(engine.closing())

    async def aclose(self) -> None:
        """Release what the limiter holds open, in an event loop."""
        if self.rules is not None:
            self.rules.close()
        await self.queues.aclose()
        if self.pressure is not None:
            await self.pressure.aclose()
        engine: Engine | None = self.__dict__.pop("engine", None)
        if engine is not None:
            await adrive(engine.closing())
        self._opened = None


def _proxies(given: Iterable[str], policy: object) -> Iterable[str]:
    proxies = given if isinstance(given, str) else list(given)
    if policy is not None and proxies:
        raise OptionError("a policy says itself which proxies it trusts: identity.ip")
    return proxies


# Rules and route limits of one request, combined in one plan.


def request_plan_of(
    revision: int,
    rules: Sequence[RulePlan],
    planned: Sequence[Planned],
    *,
    queues: tuple[Queueing, ...] = (),
    is_preflight: bool = False,
    charges_after: bool = False,
    opened: frozenset[str] = NOTHING_OPEN,
) -> RequestPlan | None:
    """The plan of *rules* and route limits together; None if there are none.

    *queues* are the fair queues to wait in. A preflight has counters of its own, and does not wait.
    *charges_after*: some rules may charge at the end of the request. The cost of those that are
    *opened* is an estimate.
    """
    planned = _distinct(rules, planned)
    every = (*rules, *[one for one, _ in planned])
    if not every and not queues:
        return None
    if is_preflight:
        every, queues = tuple(_of_preflights(one) for one in every), ()
    later = [(one.rule.id, limit) for one, limit in planned if limit.is_settled_later]
    estimated = [one.rule for one in rules if one.rule.id in opened]
    opened |= {rule for rule, _ in later}
    lease = new_name() if any(one.has_slots for one in every) else None
    plan = Plan(revision, every, lease, opened, queues, awaits_places=bool(queues))
    after = charged_after(every) if charges_after else ()
    if not opened:
        return RequestPlan(plan, after=after)
    charge_when = {rule: one.charge_when for rule, one in later if one.charge_when is not None}
    is_known_at_start = not estimated and not any(one.is_estimate for _, one in later)
    ttl_ns = max([*(one.ttl_ns for _, one in later), *(one.hold_ns or 0 for one in estimated)])
    return RequestPlan(plan, charge_when, ttl_ns, is_known_at_start, after)


def _distinct(rules: Sequence[RulePlan], planned: Sequence[Planned]) -> Sequence[Planned]:
    """*planned*, each with an id of its own. A rule of the policy keeps its id."""
    if not planned or (not rules and len(planned) == 1):
        return planned
    known = {one.rule.id for one in rules}
    own = [one.rule.id for one, _ in planned]
    if len(set(own)) < len(own):
        twice = next(name for name in own if own.count(name) > 1)
        raise UsageError(f"two limits of one request are called {twice!r}: each needs its own name")
    if known.isdisjoint(own):
        return planned
    return [(_renamed(one, known.union(own)), limit) for one, limit in planned]


def _renamed(plan: RulePlan, known: Collection[str]) -> RulePlan:
    return replace(plan, rule=replace(plan.rule, id=free_name(plan.rule.id, known)))


def _of_preflights(plan: RulePlan) -> RulePlan:
    """*plan* with counters of its own, without headers.

    A preflight must neither use the quota of a user nor fail when that is used up. But an app may
    treat it as more than a preflight, so there is a limit too: the same as for other requests.
    """
    checks = tuple(replace(check, group=f"{check.group}!preflight") for check in plan.checks)
    rule = plan.rule
    if rule.headers != "redacted":
        rule = replace(rule, headers="off")
    return replace(plan, rule=rule, checks=checks, marker=None)
