"""Where requests pass: middleware and glue for frameworks, and outgoing clients.

gate, allowance             what an app asks about its requests
naming, exemptions          whose counter it is; who is not counted
passage, passing            one request on its way through an app
merging, status             what is told
asgi, wsgi                  the middleware
starlette, fastapi, flask, django, drf      frameworks, each imported by whoever has it
outgoing                    the other direction: calls to somebody else's limited API
"""

from headgate.integrations.allowance import Allowance, by_address, by_header
from headgate.integrations.gate import Gate
from headgate.integrations.passage import Passage, Responded

__all__ = ["Allowance", "Gate", "Passage", "Responded", "by_address", "by_header"]
