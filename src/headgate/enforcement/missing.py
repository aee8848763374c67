"""What to say when the package of a framework or a client is not installed."""

from headgate.errors import MissingPackageError, not_installed

__all__ = ["MissingPackageError", "not_installed"]
