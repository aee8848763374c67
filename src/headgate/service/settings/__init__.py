"""The configuration of the service: what can be set, where it is said, what wins.

declaring (what a setting is) -> model (all of them) -> gathering (file, variables, flags)
"""

from headgate.service.settings.address import Address, parse_address
from headgate.service.settings.gathering import Gathered, SettingsError, gather
from headgate.service.settings.model import SETTINGS, Settings
from headgate.service.settings.tokens import AdminToken

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
