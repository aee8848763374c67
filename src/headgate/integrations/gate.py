"""The gate of an app: what applies to its requests, where they are counted, what they are told.

A middleware has one, and the routes behind it use it too. It does no I/O of its own but for reading
its policy; `passing` takes requests through it.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from headgate.control import PolicyFiles, PolicyWatcher
from headgate.engine.holds import charged_after
from headgate.engine.plan import Plan, RulePlan
from headgate.engine.recorder import record_denial
from headgate.engine.request import Request
from headgate.engine.rule import CompiledRule
from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.errors import OptionError
from headgate.integrations.allowance import (
    Allowance,
    Asking,
    Names,
    by_address,
    check_function,
    key_of,
    refuse_async,
)
from headgate.integrations.debugging import Debugging, debug_lines, with_exposed
from headgate.integrations.entries import entry_of
from headgate.integrations.exemptions import Exemptions, is_preflight
from headgate.integrations.passage import NOTHING, Afterwards, Entry
from headgate.integrations.pressure import Counting, Pressing
from headgate.integrations.turns import Turns
from headgate.overload import LoadShedder
from headgate.policy.identity.identifier import UNKNOWN
from headgate.policy.model import Policy
from headgate.policy.plan_cache import PlanCache
from headgate.responses import ResponseOptions, Throughput, headers_for, merged, refusal
from headgate.responses.answer import turned_away
from headgate.rule_engine import PolicyInForce
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.clock import Clock
    from headgate.control import State
    from headgate.decision import HeaderMode
    from headgate.engine.rule import Mode, Priority
    from headgate.engine.stack import Limits
    from headgate.engine.use_cases import Engine
    from headgate.integrations.allowance import (
        ChargeWhen,
        CostOf,
        ExemptWhen,
        KeyOf,
        LimitsOf,
        Q,
        Values,
    )
    from headgate.integrations.entries import Asked
    from headgate.integrations.passage import Passage
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.limit_adjustment import Scale
    from headgate.policy.model import OnStoreFailure
    from headgate.responses import Answer, Refusal
    from headgate.stores.base import Store
    from headgate.units import Seconds


# Requests that are refused before anything else is asked: there is too much to do.


SHEDDING: Final = CompiledRule("load-shedding")
"""What callers are told has refused them."""


def shed_by(shedder: LoadShedder, priority: Priority) -> Entry | None:
    """That a request is refused as *shedder* says; None if it is let in."""
    if shedder.allows(priority):
        return None
    wait_ns = round(shedder.retry_after(priority) * SECOND)
    said = RuleVerdict(SHEDDING, "", 1, turned_away(SHEDDING.id, wait_ns).decision)
    plan = Plan(0, (RulePlan(SHEDDING, "", 1, (), (), sheds=True),))
    refusal = Verdict(allowed=False, revision=0, rules=(said,), plan=plan)
    return Entry(plan, refusal=record_denial(refusal, "shedder"))


# The policy of an app: given as it is, or in files that are watched.


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
        """What pressure has brought limits down to."""
        return self.in_force.scale

    def tell(self, listener: Callable[[CompiledPolicy], None]) -> None:
        """Have *listener* told the engine that is in force, and each one that is about to be."""
        self.in_force.subscribe(listener)

    def watch(self) -> None:
        """See that the files are watched, in this process too if it was forked."""
        if self._files is None or (here := os.getpid()) in self._watchers:
            return
        # One of its own for each process: after a fork, locks of the old one may stay taken.
        watcher = PolicyWatcher(self._files, self._replace, in_force=self._loaded)
        self._watchers.setdefault(here, watcher).start(is_checked=True)

    def _replace(self, policy: Policy) -> int:
        self._loaded = None  # what was read first is in force no longer
        return self.in_force.replace(policy)

    @property
    def state(self) -> State | None:
        """How the files stand; None if they are not watched in this process."""
        watcher = self._watchers.get(os.getpid())
        return None if watcher is None else watcher.state

    def close(self) -> None:
        """Watch no longer."""
        watcher = self._watchers.pop(os.getpid(), None)
        if watcher is not None:
            watcher.stop()


REMEMBERED: Final = 4096
"""How many addresses are remembered as they stand in keys."""

DEFAULT_NAME: Final = "default"
"""What the limits of a whole app are called."""

Lines = list[tuple[str, str]]


class GateOptions(TypedDict, total=False):
    """The options of a `Gate`, for those who pass them on."""

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


def gate_of(gate: Gate | None, options: GateOptions) -> Gate:
    """*gate*, or one made with *options*: who is given one has no say in it."""
    if gate is None:
        return Gate(**options)
    if not isinstance(gate, Gate):
        raise OptionError(f"gate is {gate!r}; expected a Gate")
    if options:
        raise OptionError(f"{min(options)!r} is an option of the gate: give it to Gate(...)")
    return gate


class Gate:
    """What an app asks about its requests.

    Either *policy*, the path of a file or directory (watched for changes) or a `Policy`; or
    *limits* with *key*, *cost*, *charge_when*, *ttl*, *mode*, *on_store_failure* and *headers*, as
    of an `Allowance` called *name*; or both; or neither, for an app whose routes have limits of
    their own.

    *exempt*: paths that have no limit, such as `/health` and `/static/**`; *exempt_when*: the same
    by a function. *trusted_proxies*: who is believed about the address of a client (a policy says
    this itself). *store*, *namespace*, *salt*, *clock*: as for `RuleEngine`; limits of routes are
    counted here too. *responses*: which headers are sent. *limits_preflights*: whether CORS
    preflights are counted with all other requests, not apart from them. *shedder*: what is asked
    before anything else whether a request is let in at all; how much it matters the policy says.
    *debug_secret*: who sends a token that was signed with it hears how a request was decided.
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
        self._counting = Counting(store, clock)
        self.namespace = namespace
        self.responses = responses or ResponseOptions()
        self.tells_plainly = self.responses == ResponseOptions()
        """Whether those headers are sent that are sent if nobody says otherwise."""
        self.exemptions = Exemptions(exempt)
        self._has_exemptions = bool(self.exemptions)
        self.exempt_when = exempt_when
        self.limits_preflights = limits_preflights
        self.shedder = shedder
        self.debugging = Debugging(debug_secret, salt or debug_secret) if debug_secret else None
        """Who may hear how requests were decided; None: nobody."""
        self.now_ns: Clock = clock or time.time_ns
        self.afterwards = Afterwards(self.now_ns)
        """What could not be charged when requests were over."""
        self._key = key
        proxies = trusted_proxies if isinstance(trusted_proxies, str) else list(trusted_proxies)
        self.believes_nobody = not proxies and policy is None
        """Whether a client is always the peer."""
        self.allowance: Allowance[Request] | None = None
        if limits is not None:
            self.allowance = Allowance(
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
        if policy is not None and proxies:
            raise OptionError("a policy says itself which proxies it trusts: identity.ip")
        self.turns = Turns(clock)
        self._throughput = Throughput()
        """Where requests take turns."""
        self.pressing: Pressing | None = None
        """What lowers limits under pressure; None without a policy."""
        self.rules: AppPolicy | None = None
        if policy is not None:
            self.rules = AppPolicy(policy, salt=salt, namespace=namespace, clock=clock)
            self.rules.tell(lambda engine: self._counting.adopt(engine.terms))
            self.rules.tell(self.turns.adopt)
            self.pressing = Pressing(
                self.rules.scale, self._counting, self.turns, namespace=namespace, clock=clock
            )
            self.rules.tell(self.pressing.adopt)
        self._own_plans = PlanCache(0)
        """The plans of the limits of the gate, by key and cost."""
        self._shares_own_plans = self.allowance is not None and self.allowance.has_one_plan
        self.calls_functions = (
            exempt_when is not None
            or shedder is not None
            or key is not None
            or (self.allowance is not None and not self.allowance.is_static)
        )
        """True if a function of the app, or the shedder, is asked about each request."""
        self._by_address = by_address(trusted_proxies=proxies)
        self._peers = lru_cache(maxsize=REMEMBERED)(self._peer)
        self._peer_keys = lru_cache(maxsize=REMEMBERED)(self._peer_key)

    # ---- what applies ---------------------------------------------------------------------

    def address(self, request: Request) -> str:
        """The client's address, as text: who is counted when nobody says who it is."""
        if self.believes_nobody:
            return self._peers(request.peer)
        if self.rules is None:
            return self._by_address(request) or UNKNOWN
        return self.rules.compiled.identifier.find(request).ip

    def _peer(self, peer: str) -> str:
        return self._by_address(Request(peer=peer)) or UNKNOWN

    def _peer_key(self, peer: str) -> str:
        return key_of(self._peer(peer), str)

    def default_key(self, request: Request) -> Any:
        """Whose counter it is where an allowance does not say."""
        return self.address(request) if self._key is None else self._key(request)

    def refuse_async(self) -> None:
        """Raise `UsageError` if a function is async, which only apps that are so can wait for."""
        if self.allowance is not None:
            self.allowance.refuse_async()
        refuse_async("key", self._key)
        refuse_async("exempt_when", self.exempt_when)

    def entry(self, request: Request) -> Asking[Entry | None]:
        """What the gate itself asks about *request*; None if nothing."""
        self.watch()
        if self.exemptions and self.exemptions.covers(request.path):
            return None
        if self.exempt_when is not None and (yield self.exempt_when(request)):
            return None
        if self.shedder is not None:
            shed = shed_by(self.shedder, self._priority(request))
            if shed is not None:
                return shed
        allowance, asked = self.allowance, None
        if allowance is not None:
            asked = yield from self._values(allowance, request, request, _UNNAMED)
        return self._entry(request, asked)

    def entry_now(self, request: Request) -> Entry | None:
        """The same for a gate that calls no functions."""
        if self.rules is not None and self.rules.has_files:
            self.rules.watch()
        if self._has_exemptions and self.exemptions.covers(request.path):
            return None
        allowance = self.allowance
        if allowance is None or allowance.fixed is None or allowance.mode == "off":
            return self._entry(request, None)
        if self.believes_nobody:
            key = self._peer_keys(request.peer)
        else:
            key = key_of(self.address(request), str)
        cost = allowance.cost
        assert isinstance(cost, int)  # noqa: S101 (mypy: it is static)
        return self._entry(request, (allowance.own_names, key, cost, allowance.fixed))

    def _entry(self, request: Request, asked: Values | None) -> Entry | None:
        """The plan of the policy and of the limits of the gate, with the values for these."""
        is_apart = (
            not self.limits_preflights and request.method == "OPTIONS" and is_preflight(request)
        )
        rules, allowance = self.rules, self.allowance
        if rules is None:
            if asked is None or allowance is None:
                return None
            if not is_apart:
                known = self._own_plans.get((asked[1], asked[2]))
                if known is not None:
                    return Entry(known[0], NOTHING)
            pair = allowance.plan(*asked, self.namespace), allowance
            entry = entry_of(0, (), [pair], is_preflight=is_apart)
            if self._shares_own_plans and not is_apart and entry is not None:
                self._own_plans.keep((asked[1], asked[2]), entry.plan)
            return entry
        compiled = rules.in_force.compiled
        plan = compiled.plan(request)
        if asked is None and not (is_apart or plan.queues or compiled.has_slots):
            if not plan.rules:
                return None
            after = charged_after(plan.rules) if compiled.charges_after else ()
            return Entry(plan, NOTHING, after=after) if after else Entry(plan, NOTHING)
        pairs: list[Asked] = []
        if asked is not None and allowance is not None:
            pairs.append((allowance.plan(*asked, self.namespace), allowance))
        return entry_of(
            plan.revision,
            plan.rules,
            pairs,
            queues=plan.queues,
            is_preflight=is_apart,
            charges_after=compiled.charges_after,
        )

    def _priority(self, request: Request) -> Priority:
        return "default" if self.rules is None else self.rules.compiled.priority_of(request)

    def entry_for(
        self,
        allowances: Sequence[tuple[Allowance[Q], Names]],
        native: Q,
        request: Request,
        *,
        is_preflight: bool = False,
    ) -> Asking[Entry | None]:
        """What a part of the app with *allowances* asks about *native*, a request of a framework.

        *request* is the same request as Headgate sees it. A preflight is counted apart.
        """
        asked: list[Asked] = []
        for allowance, names in allowances:
            asked += yield from self._ask(allowance, native, request, names)
        return entry_of(0, (), asked, is_preflight=is_preflight)

    def own_plans(self, request: Request) -> Asking[list[RulePlan]]:
        """What the limits of the gate itself, its policy apart, ask about a *request*."""
        if self.allowance is None:
            return []
        asked = yield from self._ask(self.allowance, request, request, _UNNAMED)
        return [plan for plan, _ in asked]

    @property
    def counts_endpoints(self) -> bool:
        """Whether a rule in force counts by endpoint, so that routes make a difference."""
        return self.rules is not None and self.rules.in_force.compiled.counts_endpoints

    def _values(
        self, allowance: Allowance[Q], native: Q, request: Request, names: Names
    ) -> Asking[Values | None]:
        return allowance.ask(
            native,
            names=names,
            own_key=lambda given: (given or self.default_key)(request),
            address=lambda: self.address(request),
        )

    def _ask(
        self, allowance: Allowance[Q], native: Q, request: Request, names: Names
    ) -> Asking[list[Asked]]:
        told = yield from self._values(allowance, native, request, names)
        return [] if told is None else [(allowance.plan(*told, self.namespace), allowance)]

    # ---- how it fares ---------------------------------------------------------------------

    def signal(self, name: str, value: float, *, lasts: Seconds = 10) -> None:
        """Tell that the signal *name* of yours, such as the load of a database, is *value*: more
        than 1 is pressure, under a policy that has `pressure`. It counts for *lasts* seconds."""
        if self.pressing is not None:
            self.pressing.signal(name, value, lasts=lasts)

    def note(self, began_ns: int, *, failed: bool) -> None:
        """A request that began at *began_ns* has ended."""
        if self.pressing is not None:
            self.pressing.note(began_ns, failed=failed)

    # ---- what is told ---------------------------------------------------------------------

    def headers(self, passage: Passage, status: int) -> Lines:
        """What a response with *status* says of the limits of its request."""
        answer = passage.answer(status)
        debugged = debug_lines(self, passage)
        if not answer.told and not answer.loads and not answer.is_replay:
            return debugged
        now_ns = self.now_ns()
        if answer.loads and self.responses.orca:
            self._count(answer, now_ns)
        return headers_for(answer, now_ns=now_ns, options=self.responses) + debugged

    def refusal(self, passage: Passage, accept: str | None) -> Refusal:
        """The response to a request that was refused."""
        answer, now_ns = passage.answer(), self.now_ns()
        if answer.loads and self.responses.orca:
            self._count(answer, now_ns)
        told = refusal(answer, now_ns=now_ns, options=self.responses, accept=accept)
        if passage.is_debugged:
            told = replace(told, headers=tuple(merged(told.headers, debug_lines(self, passage))))
        if not passage.is_cross_origin:
            return told
        return replace(told, headers=tuple(with_exposed(list(told.headers), self.responses)))

    def _count(self, answer: Answer, now_ns: int) -> None:
        """Tell balancers how much this process does. What it refuses is not counted: it would be
        sent the more, the quicker it refuses."""
        if answer.allowed:
            self._throughput.add(now_ns)
        answer.requests_per_second = self._throughput.per_second(now_ns)

    # ---- where it is counted --------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The use cases on the store of the app."""
        return self._counting.opened or self._counting.engine

    def watch(self) -> None:
        """See that the files of the policy are watched, in this process too if it was forked."""
        if self.rules is not None:
            self.rules.watch()

    @property
    def policy_state(self) -> State | None:
        """How the files of the policy stand; None if they are not watched in this process."""
        return None if self.rules is None else self.rules.state

    def close(self) -> None:
        """Give back what the gate holds open. Whoever asks again opens it again."""
        if self.rules is not None:
            self.rules.close()
        self.turns.close()
        if self.pressing is not None:
            self.pressing.close()
        self._counting.close()

    async def aclose(self) -> None:
        """The same for an event loop."""
        if self.rules is not None:
            self.rules.close()
        await self.turns.aclose()
        if self.pressing is not None:
            await self.pressing.aclose()
        await self._counting.aclose()


_UNNAMED: Final = Names(DEFAULT_NAME, f"@{DEFAULT_NAME}")
