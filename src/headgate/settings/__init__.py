"""What can be set of a program: how it is declared, read, gathered and told.

declaring (what a setting is) -> readers (its value) -> gathering (file, variables, flags)

Which settings there are is said where they count: `service.settings`, `gateway.settings`.
"""

from headgate.settings.address import Address, parse_address
from headgate.settings.declaring import Setting, declared_in, setting
from headgate.settings.gathering import SettingsError, Told, Values, gather_values

__all__ = [
    "Address",
    "Setting",
    "SettingsError",
    "Told",
    "Values",
    "declared_in",
    "gather_values",
    "parse_address",
    "setting",
]
