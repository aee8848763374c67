"""Which requests may be sent a second time.

A request that was refused may still have been acted upon, by a proxy's timeout or a server that
counts late. So a repeat must do no harm: the method is idempotent by RFC 9110, or the caller has
given the request an `Idempotency-Key` by which the server knows it again. And the body must be
there to be sent again.
"""

from __future__ import annotations

from typing import Final

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that do once what they do twice."""

KEY_FIELD: Final = "idempotency-key"
"""The header field that makes any request one that may be repeated."""


def is_repeatable(method: str, idempotency_key: str | None, *, replayable: bool) -> bool:
    """Whether a request may be sent again. *replayable*: its body can be read from the start."""
    has_key = bool(idempotency_key and idempotency_key.strip(' "'))
    return replayable and (method in IDEMPOTENT or has_key)
