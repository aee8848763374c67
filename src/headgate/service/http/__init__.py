"""The decision service over HTTP: an ASGI app without a framework.

app        which path leads where
original   the request that a gateway asks about, and whom to believe
asked      the request that a body describes
checking   asking the engine, and what is answered
receipts   what the id of a reservation is
"""

from headgate.service.http.app import HttpApp
from headgate.service.http.replies import HttpOptions

__all__ = ["HttpApp", "HttpOptions"]
