"""Who is asking: the address behind proxies, API key, user, tenant, tier; and whose counter it is.

The way of a request through it, a module each:

    forwarding, address     which address it comes from
    found                   what it says of its caller
    parts, spelling         what of that stands in a key, and how
    identifier              all of it, for one policy
    account                 the same in words
"""

from headgate.policy.identity.address import Address, address_key, client_address
from headgate.policy.identity.identifier import Found, Identifier
from headgate.policy.identity.parts import hashed

__all__ = ["Address", "Found", "Identifier", "address_key", "client_address", "hashed"]
