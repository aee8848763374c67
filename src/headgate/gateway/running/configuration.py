"""Envoy's files, kept in step with the rules and the certificates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError
from headgate.gateway.envoy.documents import documents
from headgate.gateway.running.acceptance import Acceptance
from headgate.gateway.running.certificates import Certificates
from headgate.gateway.running.discovery import BOOTSTRAP, DiscoveryFiles
from headgate.gateway.running.logs import tell
from headgate.gateway.running.rules import Ways

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

    def begin(self, policy: Policy) -> None:
        """Write all of it, before Envoy is started. Raises `HeadgateError`."""
        self._given = self._certificates.given()
        made = documents(policy, self._given, self._places)
        self._files.write(made)
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
        on as before."""
        before = await self._acceptance.counts()
        try:
            made = documents(policy, self._given, self._places)
            replaced = self._files.write(made)
        except HeadgateError as error:
            told = f"Envoy goes on with the rules before: {error}"
            tell(told, level=logging.ERROR, event="refused", revision=policy.revision)
            return
        self._tell(made)
        if not replaced:
            return
        discovered = [name for name in replaced if name != BOOTSTRAP]
        refused = await self._acceptance.refused(before, len(discovered))
        if refused:
            told = f"Envoy refuses a part of revision {policy.revision}, and goes on without it"
            reason = self._envoy.voice.last or "it does not say why"
            names = ", ".join(refused)
            tell(f"{told} ({names}): {reason}", level=logging.ERROR, event="refused")
            return
        if BOOTSTRAP in replaced:
            tell("a part of this change counts when the gateway is started again")
        self._files.forget(made)
        self._certificates.forget(self._given)

    def _tell(self, made: Documents) -> None:
        """Say how rules are decided otherwise than asked, and what cannot be: what is new of it."""
        self._ways.tell(made.decided)
        warnings = frozenset(made.warnings)
        for told in made.warnings:
            if told not in self._warnings:
                tell(told, level=logging.WARNING)
        self._warnings = warnings
