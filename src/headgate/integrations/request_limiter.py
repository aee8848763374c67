"""`RequestLimiter`: the limits of an app, and the plan of each of its requests.

A middleware has one, and the routes behind it use it too. `plan` says what applies to a request;
a `RequestContext` checks it. Nothing here waits, apart from reading the policy.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from headgate.control import PolicyFiles, PolicyWatcher
from headgate.engine.holds import charged_after
from headgate.engine.plan import Plan, RulePlan
from headgate.engine.recorder import record_denial
from headgate.engine.request import Request
from headgate.engine.rule import CompiledRule
from headgate.engine.use_cases import Engine
from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.errors import OptionError, UsageError
from headgate.integrations.exemptions import Exemptions, is_preflight
from headgate.integrations.fair_queues import FairQueues
from headgate.integrations.late_charges import LateCharges, goes_by_bytes
from headgate.integrations.pressure import AppPressure
from headgate.integrations.response_headers import Debugging
from headgate.integrations.route_limit import (
    Names,
    RouteLimit,
    by_address,
    check_blocking,
    check_function,
    free_name,
    key_of,
    resolved,
)
from headgate.overload import LoadShedder
from headgate.policy.identity.identifier import UNKNOWN
from headgate.policy.model import Policy
from headgate.policy.plan_cache import PlanCache
from headgate.responses import ResponseOptions, Throughput
from headgate.responses.answer import turned_away
from headgate.rule_engine import PolicyInForce
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.holds import new_name
from headgate.stores.factory import open_store
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.control import State
    from headgate.decision import HeaderMode
    from headgate.engine.plan import Queueing
    from headgate.engine.rule import Mode, Priority
    from headgate.engine.stack import Limits
    from headgate.integrations.route_limit import (
        ChargeWhen,
        CostOf,
        ExemptWhen,
        KeyOf,
        LimitsOf,
        Q,
        Values,
    )
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.limit_adjustment import Scale
    from headgate.policy.model import OnStoreFailure
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Store
    from headgate.units import Seconds

    Planned = tuple[RulePlan, RouteLimit[Any]]
    """The plan of a route limit, and the limit."""

DEFAULT_NAME: Final = "default"
"""The name of the limits of a whole app."""

_UNNAMED: Final = Names(DEFAULT_NAME, f"@{DEFAULT_NAME}")
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
    """The rules that are charged when the request is over."""
    denial: Verdict | None = None
    """The denial of a request that is not even checked."""

    @property
    def counts_bytes(self) -> bool:
        """True if a rule charges the bytes of the response."""
        return any(goes_by_bytes(one.rule.declared) for one in self.after)


class LimiterOptions(TypedDict, total=False):
    """The options of a `RequestLimiter`."""

    policy: Policy | str | os.PathLike[str] | None
    limits: Limits | LimitsOf[Request] | None
    key: KeyOf[Request] | None
    cost: int | CostOf[Request]
    name: str
    exempt: Iterable[str]
    exempt_when: ExemptWhen[Request] | None
    charge_when: ChargeWhen | None
    ttl: Seconds
    mode: Mode
    on_store_failure: OnStoreFailure
    headers: HeaderMode
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
    *limits* with *key*, *cost*, *charge_when*, *ttl*, *mode*, *on_store_failure* and *headers*, as
    of a `RouteLimit` called *name*; or both; or neither, for an app whose routes have limits.

    *exempt*: paths without limits, such as `/health` and `/static/**`; *exempt_when*: the same by a
    function. *trusted_proxies*: the proxies whose client IP header counts (a policy says this
    itself). *store*, *namespace*, *salt*, *clock*: as for `RuleEngine`; they serve the limits of
    routes too. *responses*: the headers to send. *limits_preflights*: True to count CORS preflights
    with all other requests, not apart. *shedder*: a load shedder, which is asked first; the policy
    says the priority of a request. *debug_secret*: a request with a token that was signed with it
    is told how it was decided.
    """

    def __init__(
        self,
        *,
        policy: Policy | str | os.PathLike[str] | None = None,
        limits: Limits | LimitsOf[Request] | None = None,
        key: KeyOf[Request] | None = None,
        cost: int | CostOf[Request] = 1,
        name: str = DEFAULT_NAME,
        exempt: Iterable[str] = (),
        exempt_when: ExemptWhen[Request] | None = None,
        charge_when: ChargeWhen | None = None,
        ttl: Seconds = 60,
        mode: Mode = "enforce",
        on_store_failure: OnStoreFailure = "fail_open",
        headers: HeaderMode = "on",
        trusted_proxies: Iterable[str] = (),
        store: str | Store = "memory://",
        namespace: str = "headgate",
        salt: bytes = b"",
        clock: Clock | None = None,
        responses: ResponseOptions | None = None,
        limits_preflights: bool = False,
        shedder: LoadShedder | None = None,
        debug_secret: bytes = b"",
    ) -> None:
        if shedder is not None and not isinstance(shedder, LoadShedder):
            raise OptionError(f"shedder is {shedder!r}; expected a LoadShedder")
        if limits is None and (cost != 1 or charge_when is not None):
            option = "cost" if charge_when is None else "charge_when"
            raise OptionError(f"{option} is about limits, and there are none: give limits too")
        check_function("key", key)
        check_function("exempt_when", exempt_when)
        proxies = trusted_proxies if isinstance(trusted_proxies, str) else list(trusted_proxies)
        if policy is not None and proxies:
            raise OptionError("a policy says itself which proxies it trusts: identity.ip")
        self.limit: RouteLimit[Request] | None = None
        """The limits of the whole app besides the policy."""
        if limits is not None:
            self.limit = RouteLimit(
                limits=limits,
                key=key,
                cost=cost,
                name=name,
                charge_when=charge_when,
                ttl=ttl,
                mode=mode,
                on_store_failure=on_store_failure,
                headers=headers,
            )
        self.namespace = namespace
        self.responses = responses or ResponseOptions()
        self.has_usual_headers = self.responses == ResponseOptions()
        self.throughput = Throughput()
        self.exemptions = Exemptions(exempt)
        self.exempt_when = exempt_when
        self.limits_preflights = limits_preflights
        self.shedder = shedder
        self.debugging = Debugging(debug_secret, salt or debug_secret) if debug_secret else None
        self.now_ns: Clock = clock or time.time_ns
        self.late_charges = LateCharges(self.now_ns)
        self.queues = FairQueues(clock)
        self._key = key
        self._trusts_no_proxy = not proxies and policy is None
        self._by_address = by_address(trusted_proxies=proxies)
        self._plans = PlanCache(0)
        """The plans of the limits of the app: by key and cost, and by client IP."""
        self._store = AppStore(store, clock)
        self.rules: AppPolicy | None = None
        self.pressure: AppPressure | None = None
        self._calls_functions = (
            exempt_when is not None
            or shedder is not None
            or key is not None
            or (self.limit is not None and not self.limit.is_static)
        )
        self._plans_by_address = (
            policy is None
            and not self._calls_functions
            and self.limit is not None
            and self.limit.has_one_plan
            and self.limit.mode == "enforce"
        )
        self.reads_attributes = policy is not None or self._calls_functions
        """True if a rule or a function of the app may read attributes, such as the route."""
        self._has_no_limits = policy is None and limits is None and not self._calls_functions
        self.is_measured = False
        """True if the times of requests are measured, for `pressure`."""
        self.counts_endpoints = False
        """True if a rule in force counts by endpoint, so that the route has to be known."""
        self._simple_policy: CompiledPolicy | None = None
        """The policy in force, if its requests need nothing but one take."""
        if policy is not None:
            self._open_policy(policy, salt, clock)

    def _open_policy(
        self, policy: Policy | str | os.PathLike[str], salt: bytes, clock: Clock | None
    ) -> None:
        self.rules = rules = AppPolicy(policy, salt=salt, namespace=self.namespace, clock=clock)
        rules.in_force.subscribe(lambda compiled: self._store.adopt(compiled.terms))
        rules.in_force.subscribe(self.queues.adopt)
        self.pressure = AppPressure(
            rules.scale, self._store, self.queues, namespace=self.namespace, clock=clock
        )
        rules.in_force.subscribe(self.pressure.adopt)
        rules.in_force.subscribe(self._adopt)

    def _adopt(self, compiled: CompiledPolicy) -> None:
        self.counts_endpoints = compiled.counts_endpoints
        self.is_measured = compiled.policy.pressure is not None
        is_simple = not (
            self._calls_functions
            or self.limit is not None
            or compiled.has_slots
            or compiled.charges_after
            or self.is_measured
        )
        self._simple_policy = compiled if is_simple else None

    # ---- the plan of a request -------------------------------------------------------------

    def simple_plan(self, request: Request) -> Plan | None:
        """The plan of *request* if one take is all there is to do; else None, and `plan` says more.

        No function of the app is called, nothing is settled at the end, no queue is waited for.
        """
        if request.method == "OPTIONS":
            return None
        if self.exemptions.patterns and self.exemptions.covers(request.path):
            return None
        if self._plans_by_address:
            address = request.peer if self._trusts_no_proxy else self.address(request)
            known = self._plans.get(address)
            return self._plan_of_address(address) if known is None else known[0]
        compiled = self._simple_policy
        if compiled is None:
            return _NO_PLAN if self._has_no_limits else None
        if self.rules is not None and self.rules.has_files:
            self.rules.watch()
        plan = compiled.plan(request)
        return plan if plan.is_plain and not plan.queues else None

    def simple_route_plan(
        self, limits: Sequence[tuple[RouteLimit[Any], Names]], request: Request
    ) -> Plan | None:
        """The plan of the *limits* of a route, as `simple_plan`; None if `plan_route` says more."""
        if self._key is not None:
            return None
        address = request.peer if self._trusts_no_proxy else self.address(request)
        place = address, *[(limit.serial, names) for limit, names in limits]
        known = self._plans.get(place)
        if known is not None:
            return known[0]
        if not all(limit.has_one_plan and limit.is_static for limit, _ in limits):
            return None
        key = key_of(self.address(request), str)
        planned: list[Planned] = []
        for limit, names in limits:
            if limit.mode == "off":
                continue
            assert limit.fixed is not None  # noqa: S101 (mypy: it is static)
            assert isinstance(limit.cost, int)  # noqa: S101
            own = names if limit.name is None else limit.own_names
            one = limit.plan(own, key, limit.cost, limit.fixed, self.namespace)
            planned.append((one, limit))
        result = request_plan_of(0, (), planned)
        plan = _NO_PLAN if result is None else result.plan
        if not plan.is_plain:
            return None
        self._plans.keep(place, plan)
        return plan

    def _plan_of_address(self, address: str) -> Plan:
        limit = self.limit
        assert limit is not None  # noqa: S101 (mypy: only then)
        assert limit.fixed is not None  # noqa: S101
        assert isinstance(limit.cost, int)  # noqa: S101
        client = address
        if self._trusts_no_proxy:
            client = self._by_address(Request(peer=address)) or UNKNOWN
        key = key_of(client, str)
        one = limit.plan(limit.own_names, key, limit.cost, limit.fixed, self.namespace)
        plan = Plan(0, (one,))
        self._plans.keep(address, plan)  # type: ignore[arg-type] # any key with a size
        return plan

    def plan(self, request: Request) -> Effects[RequestPlan | None]:
        """The plan of the limits of the whole app for *request*; None if it has none."""
        if self.rules is not None:
            self.rules.watch()
        if self.exemptions.patterns and self.exemptions.covers(request.path):
            return None
        if self.exempt_when is not None and (yield from resolved(self.exempt_when(request))):
            return None
        if self.shedder is not None:
            denial = self._shed(self.shedder, request)
            if denial is not None:
                return denial
        values = None
        if self.limit is not None:
            values = yield from self._values(self.limit, request, request, _UNNAMED)
        return self._combine(request, values)

    def plan_route(
        self,
        limits: Sequence[tuple[RouteLimit[Q], Names]],
        native: Q,
        request: Request,
        *,
        is_preflight: bool = False,
    ) -> Effects[RequestPlan | None]:
        """The plan of the *limits* of a route for *native*, the request of a framework.

        *request* is the same as Headgate sees it. A preflight has counters of its own.
        """
        planned: list[Planned] = []
        for limit, names in limits:
            values = yield from self._values(limit, native, request, names)
            if values is not None:
                planned.append((limit.plan(*values, self.namespace), limit))
        return request_plan_of(0, (), planned, is_preflight=is_preflight)

    def own_plans(self, request: Request) -> Effects[list[RulePlan]]:
        """The plans of the limits of the app besides its policy."""
        limit = self.limit
        if limit is None:
            return []
        values = yield from self._values(limit, request, request, _UNNAMED)
        return [] if values is None else [limit.plan(*values, self.namespace)]

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
        self, limit: RouteLimit[Q], native: Q, request: Request, names: Names
    ) -> Effects[Values | None]:
        def own_key(function: Any) -> Any:
            function = function or self._key
            return self.address(request) if function is None else function(request)

        return limit.values(native, names, own_key, lambda: self.address(request))

    def _shed(self, shedder: LoadShedder, request: Request) -> RequestPlan | None:
        """The denial of *request* by *shedder*; None if it is let in."""
        priority: Priority = "default"
        if self.rules is not None:
            priority = self.rules.compiled.priority_of(request)
        if shedder.allows(priority):
            return None
        wait_ns = round(shedder.retry_after(priority) * SECOND)
        denial = RuleVerdict(_SHEDDING, "", 1, turned_away(_SHEDDING.id, wait_ns).decision)
        plan = Plan(0, (RulePlan(_SHEDDING, "", 1, (), (), sheds=True),))
        verdict = Verdict(allowed=False, revision=0, rules=(denial,), plan=plan)
        return RequestPlan(plan, denial=record_denial(verdict, "shedder"))

    def _combine(self, request: Request, values: Values | None) -> RequestPlan | None:
        """The plan of the policy and of the limits of the app, with the *values* of the latter."""
        is_apart = (
            request.method == "OPTIONS" and not self.limits_preflights and is_preflight(request)
        )
        limit = self.limit
        planned: list[Planned] = []
        if self.rules is None:
            if values is None or limit is None:
                return None
            shares = limit.has_one_plan and not is_apart
            known = self._plans.get(values[1:3]) if shares else None
            if known is not None:
                return RequestPlan(known[0], NO_CHARGE_WHEN)
            planned.append((limit.plan(*values, self.namespace), limit))
            result = request_plan_of(0, (), planned, is_preflight=is_apart)
            if shares and result is not None:
                self._plans.keep(values[1:3], result.plan)
            return result
        compiled = self.rules.compiled
        plan = compiled.plan(request)
        if values is not None and limit is not None:
            planned.append((limit.plan(*values, self.namespace), limit))
        elif not (is_apart or plan.queues or compiled.has_slots):
            after = charged_after(plan.rules) if compiled.charges_after else ()
            return RequestPlan(plan, after=after) if plan.rules else None
        return request_plan_of(
            plan.revision,
            plan.rules,
            planned,
            queues=plan.queues,
            is_preflight=is_apart,
            charges_after=compiled.charges_after,
        )

    # ---- pressure --------------------------------------------------------------------------

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """Set the signal *name*, such as the load of a database, to *value* for *lasts* seconds:
        more than 1 is pressure, under a policy with `pressure`."""
        if self.pressure is not None:
            self.pressure.signal(name, value, lasts=lasts)

    # ---- store and policy ------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The use cases on the store of the app."""
        return self._store.opened or self._store.engine

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
        self._store.close()

    async def aclose(self) -> None:
        """Release what the limiter holds open, in an event loop."""
        if self.rules is not None:
            self.rules.close()
        await self.queues.aclose()
        if self.pressure is not None:
            await self.pressure.aclose()
        await self._store.aclose()


# Rules and route limits of one request, combined in one plan.


def request_plan_of(
    revision: int,
    rules: Sequence[RulePlan],
    planned: Sequence[Planned],
    *,
    queues: tuple[Queueing, ...] = (),
    is_preflight: bool = False,
    charges_after: bool = False,
) -> RequestPlan | None:
    """The plan of *rules* and route limits together; None if there are none.

    *queues* are the fair queues to wait in. A preflight has counters of its own, and does not wait.
    *charges_after*: some rules may charge when the request is over.
    """
    planned = _distinct(rules, planned)
    every = (*rules, *[one for one, _ in planned])
    if not every and not queues:
        return None
    if is_preflight:
        every, queues = tuple(_of_preflights(one) for one in every), ()
    later = [(one.rule.id, limit) for one, limit in planned if limit.is_settled_later]
    opened = frozenset(rule for rule, _ in later)
    lease = new_name() if any(one.has_slots for one in every) else None
    plan = Plan(revision, every, lease, opened, queues, awaits_turns=bool(queues))
    after = charged_after(every) if charges_after else ()
    if not later:
        return RequestPlan(plan, after=after)
    charge_when = {rule: one.charge_when for rule, one in later if one.charge_when is not None}
    is_known_at_start = not any(one.is_estimate for _, one in later)
    ttl_ns = max(one.ttl_ns for _, one in later)
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


class AppPolicy:
    """The rules in force in an app. *policy* is one, or the path of a file or a directory.

    Raises `PolicyError` if the files cannot be read as one.
    """

    def __init__(
        self,
        policy: Policy | str | os.PathLike[str],
        *,
        salt: bytes,
        namespace: str,
        clock: Clock | None = None,
    ) -> None:
        self._files = self._loaded = None
        if isinstance(policy, Policy):
            rules = policy
        elif isinstance(policy, str | os.PathLike):
            self._files = PolicyFiles(Path(policy))
            self._loaded = self._files.load()
            rules = self._loaded.policy
        else:
            raise OptionError(f"policy is {policy!r}; expected a path or a Policy")
        self.in_force = PolicyInForce(rules, salt=salt, namespace=namespace, clock=clock)
        self.has_files = self._files is not None
        """True if there are files to watch."""
        self._watchers: dict[int, PolicyWatcher] = {}

    @property
    def compiled(self) -> CompiledPolicy:
        """The policy in force."""
        return self.in_force.compiled

    @property
    def scale(self) -> Scale:
        """The factor of limits under pressure."""
        return self.in_force.scale

    def watch(self) -> None:
        """Watch the files, in this process too if it was forked."""
        if self._files is None or (process := os.getpid()) in self._watchers:
            return
        # One of its own for each process: after a fork, locks of the old one may stay taken.
        watcher = PolicyWatcher(self._files, self._replace, in_force=self._loaded)
        self._watchers.setdefault(process, watcher).start(is_checked=True)

    def _replace(self, policy: Policy) -> int:
        self._loaded = None  # the first policy is in force no longer
        return self.in_force.replace(policy)

    @property
    def state(self) -> State | None:
        """The state of the files; None if they are not watched in this process."""
        watcher = self._watchers.get(os.getpid())
        return None if watcher is None else watcher.state

    def close(self) -> None:
        """Stop watching."""
        watcher = self._watchers.pop(os.getpid(), None)
        if watcher is not None:
            watcher.stop()


class AppStore:
    """The engine on the store of an app, opened on first use."""

    def __init__(self, store: str | Store, clock: Clock | None) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self.opened: Engine | None = None
        """The engine, if the store is open."""
        self._opened_store: Store | None = None
        self._accuracies: Accuracies = {}

    def adopt(self, accuracies: Accuracies) -> None:
        """Keep the counters of a policy as exactly as *accuracies* say from now on."""
        with self._lock:
            self._accuracies = accuracies
            if self.opened is not None:
                self.opened.set_accuracies(self, accuracies)

    @property
    def engine(self) -> Engine:
        """The use cases on the store."""
        return self.opened or self._open()

    def close(self) -> None:
        """Close the store. It is opened again if it is used again."""
        engine, self.opened = self.opened, None
        if engine is not None:
            drive(engine.closing())

    async def aclose(self) -> None:
        """Close the store, in an event loop, and forget it."""
        engine, self.opened = self.opened, None
        if engine is not None:
            await adrive(engine.closing())
        self._opened_store = None

    def _open(self) -> Engine:
        with self._lock:  # two threads must not have two stores
            if self.opened is None:
                if self._opened_store is None:
                    self._opened_store = open_store(self._store, self._clock)
                self.opened = Engine(self._opened_store)
                self.opened.set_accuracies(self, self._accuracies)
            return self.opened
