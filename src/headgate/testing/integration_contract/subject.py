"""The integration under test, with its app, its server and its clock."""

from __future__ import annotations

import re
from contextlib import ExitStack
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from headgate.testing.capabilities import Contract
from headgate.testing.clock import ManualClock
from headgate.testing.integration_contract.app import (
    AppSpec,
    ContractStore,
    HeadersOf,
    Route,
    Script,
)
from headgate.testing.integration_contract.servers import AsgiServer, WsgiServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.testing.integration_contract.servers import Exchange, Reply, Server

START: Final = 1_700_000_000
"""The time at which a test starts, in seconds."""

_FIGURE: Final = re.compile(r'"([^"]+)";r=(\d+)')


class IntegrationUnderTest(Contract):
    """The app of a test, with its server and its clock.

    The class variables declare what the framework can do. A test that needs more is not collected.
    """

    interface: ClassVar[Literal["asgi", "wsgi"]]
    """The kind of app that `build` returns."""

    has_app_limits: ClassVar[bool] = True
    """The app has limits as a whole. Else only tests of limits of routes are collected, for a
    framework whose routes can have limits without a middleware."""

    has_route_limits: ClassVar[bool] = True
    """Single routes can have limits, and be marked as exempt."""

    knows_templates: ClassVar[bool] = True
    """Rules see the template of a route: `/items/{item}`."""

    answers_errors: ClassVar[bool] = True
    """An error of the app that nothing handles is answered inside the integration, with headers.
    Else the server answers it, or a layer of the framework that is further out."""

    answers_http_errors: ClassVar[bool] = True
    """An error of the framework for a status is answered inside the integration, with headers."""

    sees_unrouted: ClassVar[bool] = True
    """Requests without a route are limited too: for paths that do not exist, and preflights."""

    reads_while_sending: ClassVar[bool] = True
    """The app may read the body of a request while it sends the response."""

    has_websockets: ClassVar[bool] = False
    has_lifespan: ClassVar[bool] = False

    can_cancel: ClassVar[bool] = False
    """The exchanges of the server have `cancel`, which cancels the task of the request."""

    clock: ManualClock
    remote: ContractStore
    """A store that waits, can be unavailable, and records renewals."""
    script: Script
    server: Server | None
    closing: ExitStack
    """Resources that are closed after the test."""

    @classmethod
    def applies(cls, capabilities: tuple[str, ...]) -> bool:
        """Return True if the framework has all *capabilities*."""
        if not cls.has_app_limits and "has_route_limits" not in capabilities:
            return False
        return super().applies(capabilities)

    # ---- to override -----------------------------------------------------------------------

    def build(self, spec: AppSpec) -> Any:
        """Return the app of *spec*, limited by its options. Override this."""
        raise NotImplementedError(f"{type(self).__name__} must override build")

    def serve(self, app: Any) -> Server:
        """Return a server of *app*; by default one in this process."""
        if self.interface == "asgi":
            return AsgiServer(app, has_lifespan=self.has_lifespan)
        return WsgiServer(app)

    # ---- for tests -------------------------------------------------------------------------

    def setup_method(self) -> None:
        """Begin a test."""
        self.clock = ManualClock(START)
        self.remote = ContractStore(self.clock)
        self.script = Script()
        self.server = None
        self.closing = ExitStack()

    def teardown_method(self) -> None:
        """End a test."""
        self.stop()
        self.closing.close()

    def start(self, *routes: Route, **options: Any) -> None:
        """Serve an app with *routes* and a limiter with *options*; its clock stands still.

        Without routes it has one at `/`. *policy* may be the data of one.
        """
        if "store" not in options:
            options["clock"] = self.clock
        if isinstance(options.get("policy"), dict):
            from headgate.policy.loader import read_policy_data  # which loads the reader of YAML

            options["policy"] = read_policy_data(options["policy"])
        spec = AppSpec(routes or (Route(),), options, self.script)
        self.server = self.serve(self.build(spec))

    def stop(self) -> None:
        """Let all requests go on, and stop the server."""
        self.script.gate.open()
        server, self.server = self.server, None
        if server is not None:
            server.close()

    def running(self) -> Server:
        """Return the server of the test."""
        if self.server is None:
            raise AssertionError("the test has started no app")
        return self.server

    def open(
        self, path: str = "/", *, method: str = "GET", length: int = 0, **headers: str
    ) -> Exchange:
        """Begin a request. In names of *headers*, underscores stand for dashes."""
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.running().open(method, path, lines, length)

    def ask(self, path: str = "/", *, method: str = "GET", **headers: str) -> Reply:
        """Return the complete response to a request."""
        return self.open(path, method=method, length=0, **headers).finish()

    def statuses(self, count: int, path: str = "/", **headers: str) -> list[int]:
        """Return the statuses of *count* requests."""
        return [self.ask(path, **headers).status for _ in range(count)]

    def left(self, path: str = "/", **headers: str) -> dict[str, int]:
        """Return the units left of each limit after one more request, by name."""
        return remaining(self.ask(path, **headers))


def remaining(reply: Reply) -> dict[str, int]:
    """The remaining units by the name of each limit, as the header `RateLimit` has them."""
    found = _FIGURE.findall(reply.headers.get("ratelimit", ""))
    return {name: int(figure) for name, figure in found}


def native_options(
    limit: Mapping[str, Any], headers_of: Callable[[Any], Mapping[str, str]]
) -> dict[str, Any]:
    """The options *limit* of a route, whose functions take the request of a framework.

    *headers_of* gives the headers of such a request.
    """
    found = dict(limit)
    for option in ("limits", "key", "cost", "exempt_when"):
        function = found.get(option)
        if isinstance(function, FunctionType):
            found[option] = _reading(function, headers_of)
    return found


def _reading(
    function: Callable[[HeadersOf], Any], headers_of: Callable[[Any], Mapping[str, str]]
) -> Callable[[Any], Any]:
    return lambda request: function(HeadersOf(headers_of(request)))
