"""Settings: declaration, values, and where they come from.

declaration (what a setting is) -> values (its types) -> sources (file, variables, flags)

The settings themselves are in `config.service` and `config.gateway`.
"""

from headgate.config.declaration import Setting, declared_in
from headgate.config.sources import Contradiction, SettingsError, Values, gather_values
from headgate.config.values import Address, parse_address

__all__ = [
    "Address",
    "Contradiction",
    "Setting",
    "SettingsError",
    "Values",
    "declared_in",
    "gather_values",
    "parse_address",
]
