"""The decision service over HTTP: an ASGI app without a framework.

app             routes; read this first
original        the request that a gateway asks about, and the headers to trust
check_request   the request that a body describes
check           the engine call and its reply
receipts        the id of a reservation
"""

from headgate.service.http.app import HttpApp
from headgate.service.http.replies import HttpOptions

__all__ = ["HttpApp", "HttpOptions"]
