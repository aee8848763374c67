"""The contract of every framework integration, as tests to run over an adapter of your own.

Read `app` first: the description of an app. `servers` calls it, `subject` is the fixture.
"""

from __future__ import annotations

from headgate.testing.integration_contract.app import (
    Answer,
    AppSpec,
    AsyncCall,
    Behaviour,
    Call,
    Route,
)
from headgate.testing.integration_contract.connections import (
    LifespanContract,
    StreamContract,
    WebSocketContract,
)
from headgate.testing.integration_contract.limits import AppLimitContract, RouteLimitContract
from headgate.testing.integration_contract.outages import OutageContract
from headgate.testing.integration_contract.request_end import ChargeContract, SlotContract
from headgate.testing.integration_contract.responses import ResponseContract
from headgate.testing.integration_contract.servers import Exchange, Reply, Server, Socket
from headgate.testing.integration_contract.subject import native_options

__all__ = [
    "Answer",
    "AppSpec",
    "AsyncCall",
    "Behaviour",
    "Call",
    "Exchange",
    "IntegrationContract",
    "Reply",
    "Route",
    "Server",
    "Socket",
    "native_options",
]


class IntegrationContract(
    ResponseContract,
    AppLimitContract,
    RouteLimitContract,
    ChargeContract,
    SlotContract,
    OutageContract,
    StreamContract,
    WebSocketContract,
    LifespanContract,
):
    """The promises of an integration, one test each.

    Inherit from it in a test module, say how to build the app, and run pytest:

        class TestMyFramework(IntegrationContract):
            interface = "wsgi"

            def build(self, spec: AppSpec) -> WSGIApplication: ...

    `build` makes an app with the routes of *spec* and a `RequestLimiter` with its options. Each
    endpoint plays the script of *spec*, and accepts GET and POST. An app with websockets answers
    each message at `/socket` with itself. Class variables declare what the framework cannot do;
    tests that need it are not collected. The app runs in this process, on a clock that stands still
    until a test moves it; override `serve` for a real server in a thread.
    """
