"""The decision service over HTTP: an ASGI app without a framework.

app             routes, requests of gateways, small endpoints; read this first
original        the request that a gateway asks about, and the headers to trust
check_request   the request that a body describes
check           the engine call and its reply, with the JSON of a verdict
reservations    amounts that are held and settled later; see ..settlement and ..receipts
schemas         the bodies of responses; openapi describes the whole API
"""

from headgate.service.http.app import HttpApp
from headgate.service.http.replies import HttpOptions

__all__ = ["HttpApp", "HttpOptions"]
