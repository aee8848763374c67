"""Rate limits inside an app: middlewares, decorators and framework extensions.

gate, allowance, entries    what an app limits: policy, limits of routes, keys, costs
exemptions                  requests and functions without limits
passage, passing            one request: checked when it begins, settled when it ends
debugging, status           the debug header; a page of a caller's limits
pressure, turns             limits under pressure; requests that wait in a fair queue
asgi, wsgi                  the middlewares
starlette, fastapi, flask, django, drf      frameworks, each needs its package
"""

from headgate.integrations.allowance import Allowance, by_address, by_header
from headgate.integrations.gate import Gate
from headgate.integrations.passage import Passage, Responded

__all__ = ["Allowance", "Gate", "Passage", "Responded", "by_address", "by_header"]
