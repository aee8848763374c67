"""Random numbers that are not those of the application.

A library that takes numbers from the generator of `random` changes what an application gets that
has seeded it, and background threads do so at any time.
"""

from __future__ import annotations

import os
from random import Random
from typing import Final

__all__ = ["below", "chance"]

_GENERATOR: Final = Random()  # noqa: S311 (it spreads load, and keeps no secret)
chance: Final = _GENERATOR.random
"""A number from 0 up to 1."""

below: Final = _GENERATOR.randrange
"""A whole number from 0, below the argument."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GENERATOR.seed)
