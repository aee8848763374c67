"""As `headgate.stores.forking`: connections are not for sharing."""

from headgate.stores.forking import Forkable, watch_forks

__all__ = ["Forkable", "watch_forks"]
