"""Settings: declaration, values, and where they come from.

declaration (what a setting is) -> readers (its value) -> gathering (file, variables, flags)

The settings themselves are in `config.service` and `config.gateway`.
"""

from headgate.config.declaration import Setting, declared_in, setting
from headgate.config.gathering import SettingsError, Told, Values, gather_values
from headgate.config.readers import Address, parse_address

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
