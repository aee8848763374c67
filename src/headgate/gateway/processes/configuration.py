"""Envoy's files, kept in step with the rules and the certificates."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.control.watcher import PolicyWatcher
from headgate.errors import HeadgateError
from headgate.gateway.envoy.documents import documents
from headgate.gateway.processes.certificates import Certificates
from headgate.gateway.processes.envoy import Acceptance
from headgate.gateway.processes.logs import NotNowError, tell
from headgate.gateway.processes.run_directory import BOOTSTRAP, DiscoveryFiles
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from headgate.config.gateway import GatewaySettings
    from headgate.control.source import PolicySource
    from headgate.gateway.envoy.values import Decided, Documents, Places
    from headgate.gateway.processes.envoy import Envoy
    from headgate.gateway.processes.run_directory import RunDirectory
    from headgate.policy.model import Policy


# The policy in force, as Envoy's configuration: made anew at every change of the rules.


_UNHEARD: Final = logging.getLogger("headgate.gateway.rules")
"""The watcher's own messages; only critical ones are shown: the service logs the others."""


class RulesInForce:
    """Follows *source*. *policy* is the newest that is good; *changed* is set for every new one.

    Rules that *may_come_later* are no reason not to start.
    """

    def __init__(
        self, source: PolicySource, *, keep: Path | None = None, may_come_later: bool = False
    ) -> None:
        _UNHEARD.setLevel(logging.CRITICAL)
        self._source = source
        self._may_come_later = may_come_later
        self._watcher = PolicyWatcher(source, self._apply, keep=keep, log=_UNHEARD)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.policy: Policy | None = None
        self.changed = asyncio.Event()

    async def start(self) -> None:
        """Read them. Raises `PolicyError` if they are no policy; waits for what may come later."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._watcher.start)
        state = self._watcher.state
        if self.policy is None and state.problems and not self._may_come_later:
            raise PolicyError(state.problems)
        if self.policy is None:
            reasons = "; ".join(state.not_ready)
            tell(f"waiting for the rules: {reasons}", level=logging.WARNING)
            _UNHEARD.setLevel(logging.NOTSET)  # nobody else says why they do not come
            await self.changed.wait()
            _UNHEARD.setLevel(logging.CRITICAL)
        self.changed.clear()

    def reread(self) -> None:
        """Look at them again, now."""
        self._watcher.check_soon()

    async def aclose(self) -> None:
        """Follow them no longer."""
        await asyncio.to_thread(self._watcher.stop)
        self._source.close()

    def _apply(self, policy: Policy) -> int:
        """Take up a policy, in the thread of the watcher."""
        self.policy = policy
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.changed.set)
        return policy.revision


class Ways:
    """Says how rules are decided where that is not as they ask for: once, until it changes."""

    def __init__(self) -> None:
        self._told: dict[str, Decided] = {}

    def tell(self, decided: tuple[Decided, ...]) -> None:
        """Say what is new in *decided*."""
        otherwise = {one.rule: one for one in decided if one.why}
        for rule, one in otherwise.items():
            if self._told.get(rule) != one:
                told = f"rule {rule}: decided {one.decide}, not {one.asked}: {one.why}"
                tell(told, rule=rule, decide=one.decide, asked=one.asked, why=one.why)
        self._told = otherwise


# How many files Envoy may still watch: it ends itself when it is one too many.


_MOST: Final = Path("/proc/sys/fs/inotify/max_user_instances")


def check_watches(wanted: int) -> None:
    """Raises `NotNowError` if this user may not watch *wanted* files more.

    For each of them Envoy takes one of the instances of inotify that Linux gives a user.
    """
    if _are_free(wanted):
        return
    most = ""
    with suppress(OSError):
        most = f"{_MOST.read_text('ascii').strip()} "
    raise NotNowError(
        f"Envoy would watch {wanted} files more, and this user has too few of its {most}instances "
        "of inotify left; raise fs.inotify.max_user_instances, or stop what takes them"
    )


def _are_free(wanted: int) -> bool:
    """Whether there are so many: they are taken, and given back."""
    if sys.platform != "linux":
        return True
    taken: list[int] = []
    begin = ctypes.CDLL(None).inotify_init1
    try:
        while len(taken) < wanted:
            descriptor = begin(os.O_CLOEXEC)
            if descriptor < 0:
                return False
            taken.append(descriptor)
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return True


class Configuration:
    """What *envoy* reads in *directory*, made of the policy, *settings* and *places*."""

    def __init__(
        self, settings: GatewaySettings, places: Places, directory: RunDirectory, envoy: Envoy
    ) -> None:
        self._places = places
        self._envoy = envoy
        self._certificates = Certificates(settings, directory)
        self._stamp = self._certificates.stamp()
        self._given = settings
        self._files = DiscoveryFiles(directory)
        self._acceptance = Acceptance(envoy.admin)
        self._ways = Ways()
        self._warnings: frozenset[str] = frozenset()
        self._refusal = ""
        self.is_behind = False

    def begin(self, policy: Policy) -> None:
        """Write all of it, before Envoy is started. Raises `HeadgateError`."""
        self._given = self._certificates.given()
        made = documents(policy, self._given, self._places)
        check_watches(self._files.added(made))
        self._files.write(made)
        self._files.settle(made)
        self._tell(made)

    def are_certificates_renewed(self) -> bool:
        """Whether the files of the certificates are other ones than when this was last asked."""
        before, self._stamp = self._stamp, self._certificates.stamp()
        return before != self._stamp

    def renew_certificates(self) -> bool:
        """Take up the certificates as they are now; False, and told, if they cannot be used."""
        try:
            self._given = self._certificates.given()
        except HeadgateError as error:
            tell(f"the certificate stays the one before: {error}", level=logging.ERROR)
            return False
        return True

    async def renew(self, policy: Policy) -> None:
        """Have Envoy do as *policy* says now. What cannot be made or taken is told; then it goes
        on as before. *is_behind* says whether it is worth trying again."""
        try:
            made = documents(policy, self._given, self._places)
            before = await self._acceptance.counts()
            replaced = await self._replaced(made)
        except HeadgateError as error:
            self.is_behind = isinstance(error, NotNowError)
            self._tell_refused(f"Envoy goes on with the rules before: {error}", policy)
            return
        self.is_behind, self._refusal = False, ""
        self._tell(made)
        if not replaced:
            return
        discovered = [name for name in replaced if name != BOOTSTRAP]
        refused = await self._acceptance.refused(before, len(discovered))
        if refused:
            self._put_back(policy, refused)
            return
        if BOOTSTRAP in replaced:
            tell("a part of this change counts when the gateway is started again")
        self._files.settle(made)
        self._certificates.forget(self._given)

    async def _replaced(self, made: Documents) -> tuple[str, ...]:
        """Write *made* if Envoy can have it: where it refuses a filter of a listener that it has
        taken, every request is refused."""
        if self._files.is_written(made):
            return ()
        check_watches(self._files.added(made))
        await self._envoy.check(made)
        return self._files.write(made)

    def _put_back(self, policy: Policy, refused: tuple[str, ...]) -> None:
        """Envoy has *refused* a part of *policy* all the same: nothing of it is to stay."""
        reason = self._envoy.voice.last or "it does not say why"
        told = f"Envoy refuses revision {policy.revision}, and goes on with the rules before"
        self._tell_refused(f"{told} ({', '.join(refused)}): {reason}", policy)
        try:
            self._files.restore()
        except HeadgateError as error:
            tell(f"the rules before cannot be put back: {error}", level=logging.ERROR)

    def _tell_refused(self, told: str, policy: Policy) -> None:
        """Once, however often it is tried."""
        if told != self._refusal:
            tell(told, level=logging.ERROR, event="refused", revision=policy.revision)
        self._refusal = told

    def _tell(self, made: Documents) -> None:
        """Say how rules are decided otherwise than asked, and what cannot be: what is new of it."""
        self._ways.tell(made.decided)
        warnings = (*made.warnings, *self._certificates.doubts)
        for told in warnings:
            if told not in self._warnings:
                tell(told, level=logging.WARNING)
        self._warnings = frozenset(warnings)
