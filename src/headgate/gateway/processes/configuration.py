"""The files of Envoy, updated when the policy or the certificates change."""

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
from headgate.gateway.processes.logs import TemporaryError, report
from headgate.gateway.processes.run_directory import BOOTSTRAP, DiscoveryFiles
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from headgate.config.gateway import GatewaySettings
    from headgate.control.source import PolicySource
    from headgate.gateway.envoy.values import Decided, Documents, Places
    from headgate.gateway.processes.envoy import Envoy
    from headgate.gateway.processes.run_directory import RunDirectory
    from headgate.policy.model import Policy


_IGNORED: Final = logging.getLogger("headgate.gateway.rules")
"""The watcher's own messages; only critical ones are shown: the service logs the others."""


class ActivePolicy:
    """Follows *source*. *policy* is the newest valid one; *changed* is set for each new one.

    A policy that *may_arrive_later* need not exist at the start.
    """

    def __init__(
        self, source: PolicySource, *, keep: Path | None = None, may_arrive_later: bool = False
    ) -> None:
        _IGNORED.setLevel(logging.CRITICAL)
        self._source = source
        self._may_arrive_later = may_arrive_later
        self._watcher = PolicyWatcher(source, self._apply, keep=keep, log=_IGNORED)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.policy: Policy | None = None
        self.changed = asyncio.Event()

    async def start(self) -> Policy:
        """Read the policy, or wait for it if it may arrive later. Raises `PolicyError`."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._watcher.start)
        state = self._watcher.state
        if self.policy is None and state.problems and not self._may_arrive_later:
            raise PolicyError(state.problems)
        if self.policy is None:
            reasons = "; ".join(state.not_ready)
            report(f"waiting for a policy: {reasons}", level=logging.WARNING)
            # The service, which logs the reason, does not run yet.
            _IGNORED.setLevel(logging.NOTSET)
        while self.policy is None:
            await self.changed.wait()
            self.changed.clear()
        _IGNORED.setLevel(logging.CRITICAL)
        self.changed.clear()
        return self.policy

    def reread(self) -> None:
        """Read the policy again now."""
        self._watcher.check_soon()

    async def aclose(self) -> None:
        """Stop following the source."""
        await asyncio.to_thread(self._watcher.stop)
        self._source.close()

    def _apply(self, policy: Policy) -> int:
        """Store a policy; called in the thread of the watcher."""
        self.policy = policy
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.changed.set)
        return policy.revision


# Envoy aborts if it cannot watch one more file.


_MOST: Final = Path("/proc/sys/fs/inotify/max_user_instances")


def check_watches(count: int) -> None:
    """Raise `TemporaryError` if this user cannot watch *count* more files.

    Envoy needs an inotify instance for each of them, and Linux limits those of a user.
    """
    if _are_free(count):
        return
    most = ""
    with suppress(OSError):
        most = f"{_MOST.read_text('ascii').strip()} "
    raise TemporaryError(
        f"Envoy needs {count} more inotify instances, and this user has too few of {most}left; "
        "raise fs.inotify.max_user_instances, or stop other programs that use them"
    )


def _are_free(count: int) -> bool:
    """True if so many instances can be allocated; they are freed at once."""
    if sys.platform != "linux":
        return True
    taken: list[int] = []
    begin = ctypes.CDLL(None).inotify_init1
    try:
        while len(taken) < count:
            descriptor = begin(os.O_CLOEXEC)
            if descriptor < 0:
                return False
            taken.append(descriptor)
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return True


class Configuration:
    """The files of *envoy* in *directory*, made from the policy, *settings* and *places*."""

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
        self._otherwise: dict[str, Decided] = {}
        self._warnings: frozenset[str] = frozenset()
        self._rejection = ""
        self.is_behind = False

    def begin(self, policy: Policy) -> None:
        """Write all files before the start of Envoy. Raises `HeadgateError`."""
        self._given = self._certificates.given()
        made = documents(policy, self._given, self._places)
        check_watches(self._files.added(made))
        self._files.write(made)
        self._files.settle(made)
        self._report(made)

    def have_certificates_changed(self) -> bool:
        """True if the certificate files changed since the last call."""
        before, self._stamp = self._stamp, self._certificates.stamp()
        return before != self._stamp

    def reload_certificates(self) -> bool:
        """Read the certificates again; if they are invalid, report it and return False."""
        try:
            self._given = self._certificates.given()
        except HeadgateError as error:
            report(
                f"the new certificate is invalid, so the old one stays in use: {error}",
                level=logging.ERROR,
            )
            return False
        return True

    async def renew(self, policy: Policy) -> None:
        """Update Envoy to *policy*. If that fails, report it and keep the configuration before.

        *is_behind* is True afterwards if a retry may succeed.
        """
        try:
            made = documents(policy, self._given, self._places)
            before = await self._acceptance.counts()
            replaced = await self._replaced(made)
        except HeadgateError as error:
            self.is_behind = isinstance(error, TemporaryError)
            self._report_rejected(f"Envoy keeps the policy before: {error}", policy)
            return
        self.is_behind, self._rejection = False, ""
        self._report(made)
        if not replaced:
            return
        discovered = [name for name in replaced if name != BOOTSTRAP]
        rejected = await self._acceptance.rejected(before, len(discovered))
        if rejected:
            self._roll_back(policy, rejected)
            return
        if BOOTSTRAP in replaced:
            report("Restart the gateway to apply part of this change.")
        self._files.settle(made)
        self._certificates.forget(self._given)

    async def _replaced(self, made: Documents) -> tuple[str, ...]:
        """Write *made* if Envoy validates it.

        If Envoy rejected a filter of a listener that it has accepted, it would deny every request.
        """
        if self._files.is_written(made):
            return ()
        check_watches(self._files.added(made))
        await self._envoy.check(made)
        return self._files.write(made)

    def _roll_back(self, policy: Policy, rejected: tuple[str, ...]) -> None:
        """Restore the files before *policy*, of which Envoy *rejected* a part."""
        reason = self._envoy.log.last_error or "no reason was logged"
        message = f"Envoy rejects revision {policy.revision} and keeps the policy before"
        self._report_rejected(f"{message} ({', '.join(rejected)}): {reason}", policy)
        try:
            self._files.restore()
        except HeadgateError as error:
            report(f"the policy before cannot be restored: {error}", level=logging.ERROR)

    def _report_rejected(self, message: str, policy: Policy) -> None:
        """Report a rejection once, however often it is retried."""
        if message != self._rejection:
            report(message, level=logging.ERROR, event="refused", revision=policy.revision)
        self._rejection = message

    def _report(self, made: Documents) -> None:
        """Report new warnings, and rules that are not decided as they ask for."""
        otherwise = {one.rule: one for one in made.decided if one.why}
        for rule, one in otherwise.items():
            if self._otherwise.get(rule) != one:
                message = f"rule {rule}: decided {one.decide} instead of {one.asked}: {one.why}"
                report(message, rule=rule, decide=one.decide, asked=one.asked, why=one.why)
        self._otherwise = otherwise
        warnings = (*made.warnings, *self._certificates.warnings)
        for message in warnings:
            if message not in self._warnings:
                report(message, level=logging.WARNING)
        self._warnings = frozenset(warnings)
