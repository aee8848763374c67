"""The whole gateway, from its terms to its exit status.

checked -> rules read -> files written -> the service serves -> Envoy serves -> told
        ... rules change -> files replaced ...
SIGTERM -> Envoy drains -> Envoy ends -> the service ends -> nothing is left
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.control.endless import EndlessTask
from headgate.gateway.demo import DemoUpstream, demo_rules
from headgate.gateway.running.admin import AdminError
from headgate.gateway.running.child import Child
from headgate.gateway.running.configuration import Configuration
from headgate.gateway.running.drain import drain
from headgate.gateway.running.envoy import Envoy
from headgate.gateway.running.logs import ENVOY_LOG, LEVELS, LOG, tell
from headgate.gateway.running.places import places_of
from headgate.gateway.running.preflight import preflight
from headgate.gateway.running.reach import unreachable
from headgate.gateway.running.rules import RulesInForce
from headgate.gateway.running.run_directory import KEPT, run_directory
from headgate.gateway.running.service import Service
from headgate.gateway.running.telling import tell_start
from headgate.gateway.upstreams import Upstream

if TYPE_CHECKING:
    from headgate.gateway.running.run_directory import RunDirectory
    from headgate.gateway.running.terms import Terms

DONE: Final = 0
CUT_OFF: Final = 1
"""The exit status if something under way had to be cut off."""

_LOOK: Final = 2.0
"""Seconds between two looks at the certificates."""

_MORE: Final = 5.0
"""How many seconds longer than its own drain a program may take to end."""

_FOUND: Final = 10.0
"""How many seconds Envoy may take to find the service before requests are let in all the same."""

_UPSTREAM: Final = "upstream.sock"


def run(terms: Terms) -> int:
    """Run until told to stop; the exit status. Raises `HeadgateError` if it cannot start."""
    ENVOY_LOG.setLevel(LEVELS[terms.gateway.envoy_log_level])  # whatever we tell ourselves
    with ExitStack() as held:
        terms, program = preflight(terms, held)
        directory = held.enter_context(run_directory(terms.gateway.run_dir))
        return asyncio.run(_serve(_with_demo(terms, directory), program, directory))


async def _serve(terms: Terms, program: str, directory: RunDirectory) -> int:
    return await Up(terms, program, directory).serve()


def _with_demo(terms: Terms, directory: RunDirectory) -> Terms:
    """*terms* with rules and an upstream, if they are for the demo: rules that can be edited."""
    if not terms.is_demo:
        return terms
    path = directory.place(KEPT)
    if not path.exists():
        directory.write(KEPT, demo_rules())
    upstream = Upstream(path=str(directory.place(_UPSTREAM)))
    return replace(terms, rules=str(path), gateway=replace(terms.gateway, upstream=(upstream,)))


class Up:
    """Runs what *terms* ask for, with Envoy's *program* and its files in *directory*."""

    def __init__(self, terms: Terms, program: str, directory: RunDirectory) -> None:
        self._terms = terms
        self._directory = directory
        self._stopping = asyncio.Event()
        self._is_hup = False
        self._is_at_once = False
        self._ending: asyncio.Task[int] | None = None
        self._following = EndlessTask(self._follow, name="following the rules", log=LOG)
        place = terms.rules or ""
        self._rules = RulesInForce(
            terms.open_storage(place), keep=terms.keep, may_come_later=terms.may_come_later
        )
        settings = terms.gateway
        self._envoy = Envoy(program, settings, directory)
        self._service = Service(terms.service, place, directory)
        self._envoy_child, self._service_child = Child(self._envoy), Child(self._service)
        places = places_of(settings, directory, self._service.sockets)
        self._configuration = Configuration(settings, places, directory, self._envoy)

    async def serve(self) -> int:
        """Run all of it; the exit status. Raises `HeadgateError`, and nothing runs then."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        async with AsyncExitStack() as stack:
            if not await self._is_started(stack):
                tell("stopped before it served", event="stopped")
                return DONE
            await self._stopping.wait()
            self._ending = asyncio.create_task(self._end())
            await asyncio.wait([self._ending])
            status = CUT_OFF if self._is_at_once else self._ending.result()
        tell("stopped" if status == DONE else "stopped, not cleanly", event="stopped")
        return status

    def stop(self) -> None:
        """Drain; at once if it has been told before."""
        if self._stopping.is_set():
            LOG.warning("told to stop again: ending at once")
            self._is_at_once = True
            self._envoy_child.kill_now()
            self._service_child.kill_now()
            if self._ending is not None:
                self._ending.cancel()
        self._stopping.set()

    async def _is_started(self, stack: AsyncExitStack) -> bool:
        """Start everything; False if it was told to stop before that was done."""
        starting = asyncio.create_task(self._start(stack))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return False
        starting.result()
        return True

    async def _start(self, stack: AsyncExitStack) -> None:
        terms = self._terms
        if terms.is_demo:
            upstream = DemoUpstream(str(self._directory.place(_UPSTREAM)))
            stack.push_async_callback(upstream.aclose)
            await upstream.start()
        stack.push_async_callback(self._rules.aclose)
        await self._rules.start()
        if self._rules.policy is None:
            return
        self._configuration.begin(self._rules.policy)
        stack.push_async_callback(self._service_child.kill)
        await self._service_child.start()
        stack.push_async_callback(self._envoy_child.kill)
        await self._envoy_child.start()
        if not await self._envoy.finds_service(within=_FOUND):
            told = "Envoy does not reach the service yet; until it does, on_store_failure counts"
            tell(told, level=logging.WARNING)
        stack.push_async_callback(self._following.aclose)
        self._following.start()
        self._tell_start()
        for told in await unreachable(terms.gateway.upstream):
            tell(told, level=logging.WARNING, event="upstream")

    def _tell_start(self) -> None:
        pids = {"envoy_pid": self._envoy_child.pid, "service_pid": self._service_child.pid}
        started = self._service.voice.started or {}
        tell_start(self._terms, self._directory, started, pids=pids)

    def _hang_up(self) -> None:
        tell("SIGHUP: looking at the rules and the certificates again")
        self._rules.reread()
        self._service_child.signal(signal.SIGHUP)
        self._is_hup = True
        self._rules.changed.set()

    async def _follow(self) -> None:
        """Have Envoy follow the rules and the certificates."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._rules.changed.wait()
            is_renewed = self._configuration.are_certificates_renewed() or self._is_hup
            self._is_hup = False
            if is_renewed and not self._configuration.renew_certificates():
                is_renewed = False
            is_due = is_renewed or self._configuration.is_behind
            if not is_due and not self._rules.changed.is_set():
                continue
            self._rules.changed.clear()
            if self._rules.policy is not None:
                await self._configuration.renew(self._rules.policy)

    async def _end(self) -> int:
        """Drain and end everything; the exit status."""
        linger, grace = self._terms.service.linger, self._terms.service.drain
        await self._following.aclose()
        await self._envoy_child.let_go()
        is_done = await self._is_drained()
        await self._envoy_child.stop(within=_MORE)
        self._envoy.clear()
        is_clean = await self._service_child.stop(within=linger + grace + _MORE)
        return DONE if is_done and is_clean else CUT_OFF

    async def _is_drained(self) -> bool:
        """Whether all requests have come to their end; told if not."""
        if self._envoy_child.pid is None or not self._envoy.voice.serves or self._is_at_once:
            return not self._is_at_once  # nothing is under way in an Envoy that does not serve
        grace = self._terms.service.drain
        told = f"requests were cut off: they took longer than {grace:g} s"
        try:
            if await drain(self._envoy.admin, linger=self._terms.service.linger, grace=grace):
                return True
        except AdminError as error:
            told = f"requests may have been cut off: {error}"
        if not self._is_at_once:
            tell(told, level=logging.WARNING)
        return False
