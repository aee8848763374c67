"""What keeps a gateway from starting, or from doing what it should."""

from __future__ import annotations

from headgate.errors import HeadgateError


class GatewayError(HeadgateError):
    """A gateway that cannot be run: the message says what is in the way, and what would help."""


class NotNowError(GatewayError):
    """It cannot be done as things are on this machine now; later it may be."""
