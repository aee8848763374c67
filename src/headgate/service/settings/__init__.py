"""The configuration of the service: what can be set of it, and what makes sense together."""

from headgate.service.settings.gathered import Gathered, gather
from headgate.service.settings.model import SETTINGS, Settings
from headgate.service.settings.tokens import AdminToken
from headgate.settings import Address, SettingsError, parse_address

__all__ = [
    "SETTINGS",
    "Address",
    "AdminToken",
    "Gathered",
    "Settings",
    "SettingsError",
    "gather",
    "parse_address",
]
