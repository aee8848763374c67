"""Who is asking, and whose counter it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.identity.account import account_of, shown_claim
from headgate.identity.forwarding import Trail
from headgate.identity.found import Found
from headgate.identity.parts import claim_of, joined, part_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.identity.parts import Part
    from headgate.rules.model import Identity, Rule, Source
    from headgate.rules.request import Request


class Identifier:
    """Tells callers apart as *identity* says, and names their counters.

    *salt* is the key that secrets are hashed with: the same on all nodes of a fleet, and secret
    itself. Safe to use from several threads. Raises `OptionError` for lookups that lead nowhere.
    """

    __slots__ = ("_identity", "_salt", "_trail", "_wholes")

    def __init__(self, identity: Identity, *, salt: bytes = b"") -> None:
        for name in identity.sources:
            _check_lookups(name, identity.sources)
        self._identity = identity
        self._salt = salt
        self._trail = Trail(identity.address)
        self._wholes: dict[tuple[tuple[str, ...], tuple[str, ...]], Part] = {}

    def find(self, request: Request) -> Found:
        """What *request* says of its caller; read as far as it is asked for."""
        return Found(request, self._identity, self._trail)

    def key(self, rule: Rule, request: Request, found: Found) -> str | None:
        """The key of the counter of *rule* for *request*; None if the rule does not apply.

        *found* is what `find` gave for this request. The key is printable ASCII, at most some 150
        bytes a part, and different callers never share one. Raises `OptionError` for a `key_by`
        that the identity does not know.
        """
        whole = self._wholes.get((rule.key_by, _endpoints(rule)))
        if whole is None:
            whole = self.prepare(rule)
        return whole(request, found)

    def account(self, rule: Rule, request: Request) -> list[str]:
        """Where each part of the key of *rule* comes from, in words; secrets only hashed."""
        found = self.find(request)
        return [
            f"{name}: {account_of(name, rule, found, self._identity, self._trail, self._salt)}"
            for name in rule.key_by
        ]

    def shown(self, request: Request) -> dict[str, str | None]:
        """What *request* says of its caller, by the names of the sources and `ip`, as people may
        see it: secrets only hashed, long values cut; None for what is missing."""
        found = self.find(request)
        claims = {name: claim_of(name, self._identity) for name in found}
        return {"ip": found.ip} | {
            name: shown_claim(claim, found, self._salt) for name, claim in claims.items()
        }

    def prepare(self, rule: Rule) -> Part:
        """What makes the keys of *rule*, as `key` does; `OptionError` if it counts by what nobody
        knows."""
        if not rule.key_by:
            raise OptionError(f"rule {rule.id!r} counts by nothing; one for everybody is 'global'")
        endpoints = _endpoints(rule)
        parts = tuple(part_of(name, self._identity, self._salt, endpoints) for name in rule.key_by)
        whole = parts[0] if len(parts) == 1 else joined(parts)
        self._wholes[rule.key_by, endpoints] = whole
        return whole


def _endpoints(rule: Rule) -> tuple[str, ...]:
    """The endpoints of *rule* as far as its key depends on them."""
    return rule.match.endpoints if "endpoint" in rule.key_by else ()


def _check_lookups(name: str, sources: Mapping[str, Source]) -> None:
    way = [name]
    while (following := sources[way[-1]].lookup) is not None:
        if following not in sources:
            raise OptionError(f"identity.{way[-1]} looks up {following!r}, which is no source")
        if following in way:
            raise OptionError(f"identity.{way[-1]} looks itself up: {' -> '.join(way)}")
        way.append(following)
