"""The WSGI middleware: each request is asked about, and its response told of it.

It passes on what it is given: bodies go out chunk by chunk as the app makes them, `write` and
`wsgi.file_wrapper` work as ever. It is finished with a request when the app has returned a whole
body, a list or tuple, and else when the server closes the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headgate.enforcement.debugging import is_debugged
from headgate.enforcement.gate import gate_of
from headgate.enforcement.passage import Passage
from headgate.enforcement.passing import enter
from headgate.enforcement.wsgi.incoming import PASSAGE, WsgiRequest, passage_in
from headgate.enforcement.wsgi.sending import refuse, watched

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.enforcement.gate import Gate, GateOptions


class RateLimitMiddleware:
    """Limits the requests to *app* as *gate* says, or as a gate made with the same options would.

    Inside of another one it asks and refuses, and the outer one tells what came of both. The same
    gate is asked about a request once, however many of them share it.
    """

    def __init__(
        self, app: WSGIApplication, gate: Gate | None = None, **options: Unpack[GateOptions]
    ) -> None:
        self.app = app
        self.gate = blocking(gate_of(gate, options))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Take one request."""
        request = WsgiRequest(environ)
        outer = passage_in(environ)
        passage = outer or begin(request, self.gate)
        if self.gate not in passage.asked:
            passage.asked.add(self.gate)
            if not enter(passage, self.gate, self.gate.entry(request)):
                refusal = self.gate.refusal(passage, request.header("accept"))
                return refuse(request, start_response, refusal)
        if outer is not None:  # another of our middlewares, further out, sees to the response
            return self.app(environ, start_response)
        return watched(self.app, environ, start_response, passage)


def begin(request: WsgiRequest, gate: Gate, *, is_watched: bool = True) -> Passage:
    """A passage for *request*, which is there for all parts of the app from now on."""
    is_cross_origin = request.header("origin") is not None
    passage = Passage(
        gate,
        is_watched=is_watched,
        is_cross_origin=is_cross_origin,
        is_debugged=is_debugged(gate, request),
    )
    request.environ[PASSAGE] = passage
    return passage


def blocking(gate: Gate) -> Gate:
    """*gate*, ready for an app that blocks. `UsageError` if it has functions that do not.

    Its store is opened here: not by the first request, as several threads may have that.
    """
    gate.refuse_async()
    _ = gate.runner
    return gate
