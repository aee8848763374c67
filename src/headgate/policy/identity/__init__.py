"""The identity of a caller: address, API key, user, tenant, tier; and the key of its counter.

address         the client's address behind trusted proxies
identifier      the caller of a request, for one policy
parts           the parts of a key and how they are spelled
"""

from headgate.policy.identity.address import Address, address_key, client_address
from headgate.policy.identity.identifier import AmbiguityError, Found, Identifier
from headgate.policy.identity.parts import hashed

__all__ = [
    "Address",
    "AmbiguityError",
    "Found",
    "Identifier",
    "address_key",
    "client_address",
    "hashed",
]
