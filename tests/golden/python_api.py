"""The one place where recordings call Python names of Headgate: a redesign edits it alone."""

from headgate.cli import main

__all__ = ["main"]
