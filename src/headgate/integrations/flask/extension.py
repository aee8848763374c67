"""The extension.

Each request passes the gate before it is served, when Flask knows its route. What the response
says, and when it is over, is seen from outside of the app, around its `wsgi_app`: there streams,
files, errors and clients that go away all end in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from flask import current_app, request, request_finished
from werkzeug.wsgi import ClosingIterator

from headgate.errors import UsageError
from headgate.integrations.allowance import Allowance, LimitOptions
from headgate.integrations.flask.admission import (
    EXTENSION,
    State,
    admit_to_app,
    incoming_request,
    is_exempt_here,
    mark_exempt,
    state_of,
)
from headgate.integrations.flask.limits import LimitedFunctions, limited, refuse_lost_limits
from headgate.integrations.gate import gate_of
from headgate.integrations.status import status_body
from headgate.integrations.wsgi import WsgiRequest, begin, blocking, is_whole, passage_in, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from flask import Flask, Request, Response

    from headgate.engine.stack import Limits
    from headgate.integrations.allowance import LimitsOf
    from headgate.integrations.gate import Gate, GateOptions

F = TypeVar("F")

_WHOLE: Final = "headgate.whole"
"""In an environ: Flask's response to it is no stream, and has all of its content."""


class RateLimits:
    """Limits the requests to *app* as *gate* says, or as a gate made with the same options would.

    Without *app*, `init_app` is called for each app that it is for. *limits_static*: whether files
    of static folders are counted like anything else.
    """

    def __init__(
        self,
        app: Flask | None = None,
        gate: Gate | None = None,
        *,
        limits_static: bool = False,
        **options: Unpack[GateOptions],
    ) -> None:
        self._gate, self._options = gate, options
        self._limits_static = limits_static
        self._functions = LimitedFunctions()
        if gate is not None:
            gate_of(gate, options)  # says at once if they do not go together
        if app is not None:
            self.init_app(app)

    def init_app(
        self, app: Flask, gate: Gate | None = None, **options: Unpack[GateOptions]
    ) -> None:
        """Limit the requests to *app*. What is given here goes before what was given to the class.

        Each app has a gate of its own unless one is given. `UsageError` if the app has limits.
        """
        if EXTENSION in app.extensions:
            raise UsageError(f"the app {app.name!r} has its RateLimits already: one is enough")
        if gate is None and self._gate is None:
            gate = gate_of(None, {**self._options, **options})
        else:
            gate = gate_of(gate or self._gate, options)
        state = State(blocking(gate), self._limits_static, self._functions)
        app.extensions[EXTENSION] = state
        app.before_request(_ask)
        request_finished.connect(_note_whole, app)
        app.wsgi_app = _Watching(app.wsgi_app, gate)  # type: ignore[method-assign]

    def limit(
        self, limits: Limits | LimitsOf[Request], **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]:
        """Limit a view, or all views of a blueprint together.

        The options are explained in `Allowance`; functions are called with Flask's request, and are
        not async. Several of these on one view are one check, all or nothing. A refusal is raised:
        handlers for 429 may answer it. Outside of requests a limited function is as it was.
        """
        allowance: Allowance[Request] = Allowance(limits=limits, **options)
        allowance.refuse_async()

        def decorate(target: F) -> F:
            return limited(target, allowance, self._functions)

        return decorate

    def exempt(self, target: F) -> F:
        """Exempt a view, a class of views or a blueprint from the limits of the app, and from those
        of its blueprints. Limits of its own it keeps."""
        return mark_exempt(target)

    @mark_exempt
    def status(self) -> Response:
        """A view that tells callers of their limits, and consumes none:
        `app.add_url_rule("/rate_limit", view_func=limits.status)`."""
        body = status_body(state_of(current_app).gate, incoming_request())
        headers = {"Cache-Control": "no-store"}
        return current_app.response_class(body, headers=headers, mimetype="application/json")

    def gate(self, app: Flask) -> Gate:
        """The gate of *app*: to close it, or to look at it in tests."""
        return state_of(app).gate


def _ask() -> None:
    """Ask what the gate of the app asks; unless a middleware with the same gate has done so."""
    state = state_of(current_app)
    refuse_lost_limits(state.functions)
    passage = passage_in(request.environ)
    if passage is not None and state.gate in passage.asked:
        return
    if not is_exempt_here():
        admit_to_app()


def _note_whole(_app: Flask, response: Response, **_: Any) -> None:
    """Note whether *response*, as it is sent, has all of its content."""
    is_empty = request.method == "HEAD"
    request.environ[_WHOLE] = response.is_sequence or is_empty or _was_raised(response)


def _was_raised(response: Response) -> bool:
    """Whether *response* is that of an error: Flask calls those as apps, and has an iterator."""
    is_called = isinstance(response.response, ClosingIterator)
    return is_called and response.status_code >= 300 and response.content_length is not None


class _Watching:
    """A Flask app's `wsgi_app` whose responses are told of limits, and seen to their end."""

    def __init__(self, app: WSGIApplication, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if passage_in(environ) is not None:  # somebody further out sees to it
            return self._app(environ, start_response)

        def knows_whole(result: object) -> bool:
            # What somebody between us and Flask has made of it is another thing.
            is_flasks = type(result) is ClosingIterator and environ.get(_WHOLE, False)
            return is_flasks or is_whole(result)

        passage = begin(WsgiRequest(environ), self._gate)
        return watched(self._app, environ, start_response, passage, knows_whole=knows_whole)
