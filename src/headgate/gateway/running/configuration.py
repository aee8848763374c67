"""Envoy's files, kept in step with the rules and the certificates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError
from headgate.gateway.envoy.documents import documents
from headgate.gateway.running.acceptance import Acceptance
from headgate.gateway.running.certificates import Certificates
from headgate.gateway.running.discovery import BOOTSTRAP, DiscoveryFiles
from headgate.gateway.running.errors import NotNowError
from headgate.gateway.running.logs import tell
from headgate.gateway.running.rules import Ways
from headgate.gateway.running.watches import check_watches

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Documents, Places
    from headgate.gateway.running.envoy import Envoy
    from headgate.gateway.running.run_directory import RunDirectory
    from headgate.gateway.settings import GatewaySettings
    from headgate.rules.model import Policy


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
