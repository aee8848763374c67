"""Secrets in keys, in the clear: for operators who look at their own trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.identity.parts import claim_of
from headgate.identity.spelling import hasher
from headgate.rules.model import BUILT_IN_PARTS
from headgate.simulator.tallies import MOST_KEYS

if TYPE_CHECKING:
    from headgate.identity import Found
    from headgate.rules.model import Policy

_LONGEST_TOLD: Final = 80
_HASHED: Final = re.compile(r"~[0-9a-f]{32}")


class ClearKeys:
    """What the secrets in the keys of *policy* are, as far as they were seen; so many at most."""

    __slots__ = ("_claims", "_hash", "_seen")

    def __init__(self, policy: Policy, salt: bytes) -> None:
        names = {part for rule in policy.rules for part in rule.key_by} - {*BUILT_IN_PARTS}
        claims = [claim_of(name, policy.identity) for name in sorted(names)]
        self._claims = [claim for claim in claims if claim.secret]
        self._hash = hasher(salt)
        self._seen: dict[str, str] = {}

    def see(self, found: Found) -> None:
        """Remember the secrets of a request."""
        for claim in self._claims:
            value = claim.value(found)
            if value is not None and len(self._seen) < MOST_KEYS:
                self._seen[self._hash(value)] = ascii(value[:_LONGEST_TOLD])[1:-1]

    def tell(self, key: str) -> str:
        """*key* with its secrets in the clear."""
        return _HASHED.sub(lambda digest: self._seen.get(digest[0], digest[0]), key)
