"""What keeps a gateway from starting."""

from __future__ import annotations

from headgate.errors import HeadgateError


class GatewayError(HeadgateError):
    """A gateway that cannot be run: the message says what is in the way, and what would help."""
