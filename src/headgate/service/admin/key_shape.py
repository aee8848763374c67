"""What the keys of a rule look like, so that none is taken for one that cannot be.

A key that no caller ever has would be blocked in vain; and one who gives a raw credential in the
place of its digest would have it kept for ever, in the policy and in what is noted.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.identity.parts import claim_of
from headgate.identity.spelling import spelled
from headgate.rules.model import BUILT_IN_PARTS, GLOBAL

if TYPE_CHECKING:
    from headgate.rules.model import Identity, Rule

_DIGEST: Final = "~[0-9a-f]{32}"
_VALUE: Final = "[^&]*"


def key_shape(rule: Rule, identity: Identity) -> str:
    """What a key of *rule* looks like, in words: `tenant=...&api_key=~DIGEST`."""
    return "&".join(map(partial(_shape, identity=identity), rule.key_by))


def fits(key: str, rule: Rule, identity: Identity) -> bool:
    """Whether *key* may be one of *rule*."""
    parts = map(partial(_pattern, identity=identity), rule.key_by)
    return re.fullmatch("&".join(parts), key) is not None


def _shape(name: str, identity: Identity) -> str:
    if name == GLOBAL:
        return name
    label, is_secret = _claimed(name, identity)
    return f"{label}=~DIGEST" if is_secret else f"{label}=..."


def _pattern(name: str, identity: Identity) -> str:
    if name == GLOBAL:
        return re.escape(name)
    label, is_secret = _claimed(name, identity)
    value = _DIGEST if is_secret else _VALUE
    return f"{re.escape(label)}(?:={value}|!shared|!ip={_VALUE})"


def _claimed(name: str, identity: Identity) -> tuple[str, bool]:
    if name in BUILT_IN_PARTS:
        return name, False
    claim = claim_of(name, identity)
    return spelled(claim.name), claim.secret
