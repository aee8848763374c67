"""The WSGI middleware: checks each request, and adds headers to its response.

Bodies go out chunk by chunk as the app makes them; `write` and `wsgi.file_wrapper` work as ever. A
request is complete when the app has returned a whole body, a list or tuple, and else when the body
has no more chunks or is closed.
"""

from __future__ import annotations

import io
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from headgate.engine.request import NOTHING
from headgate.errors import UsageError
from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_context import TOKEN, RequestContext, announced_size
from headgate.integrations.request_limiter import limiter_of
from headgate.integrations.request_view import LOCAL, RequestView, environ_lines
from headgate.runtime.drivers import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sized
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.engine.request import Reads
    from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter

    Headers = list[tuple[str, str]]

__all__ = ["RateLimitMiddleware", "StatusApp", "WsgiRequest", "report"]

CONTEXT: Final = "headgate"
"""The key of an environ under which the context of its request is."""

_UNIX: Final = frozenset({"", "<local>", "localhost", "unix:"})
"""The names of the peer on a Unix socket: gunicorn, Werkzeug, waitress, nginx."""

_APART: Final = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
"""The headers with names of their own in an environ."""

_TOKEN: Final = f"HTTP_{TOKEN.upper().replace('-', '_')}"
"""The debug token."""


class WsgiRequest(RequestView):
    """A view of the request of *environ*, which has what a server or a framework put in it:
    `request.environ["REMOTE_USER"]`."""

    __slots__ = ("environ",)

    environ: WSGIEnvironment

    def __init__(self, environ: WSGIEnvironment) -> None:
        address = str(environ.get("REMOTE_ADDR") or "")
        self.environ = environ
        self.method = environ.get("REQUEST_METHOD", "GET").upper()
        self.peer = LOCAL if address in _UNIX else address
        self._attributes = NOTHING
        self._headers = self._path = None

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines all, joined by commas.

        A name with an underscore is never found: WSGI does not distinguish it from one with a dash.
        """
        if "_" in name:
            return None
        apart = _APART.get(name)
        if apart is not None:
            return self.environ.get(apart) or None
        value: str | None = self.environ.get(f"HTTP_{name.upper().replace('-', '_')}")
        return value

    def parts(self, reads: Reads) -> tuple[Hashable, ...]:
        """The values of all that *reads* names, as the environ has them."""
        place = self._place()
        if type(self) is not place[0]:  # a subclass may read something else
            return super().parts(reads)
        found = (
            *place,
            self.environ.get("REMOTE_ADDR", ""),
            *environ_lines(self.environ, reads),
        )
        return (*found, *self._attributes_read(reads)) if reads.attributes else found

    def _place(self) -> tuple[Any, ...]:
        """The class, the method and the path, as they are."""
        environ = self.environ
        return (
            WsgiRequest,
            environ.get("REQUEST_METHOD", "GET"),
            environ.get("SCRIPT_NAME", ""),
            environ.get("PATH_INFO", ""),
        )

    def _read_headers(self) -> tuple[tuple[str, str], ...]:
        lines = [
            (name, str(value))
            for key, value in self.environ.items()
            if key.startswith("HTTP_") and (name := key[5:].lower().replace("_", "-")) not in _APART
        ]
        lines += [(name, value) for name in _APART if (value := self.header(name)) is not None]
        return tuple(lines)

    def _read_path(self) -> bytes:
        """All of it: what the app is mounted under, and what follows."""
        path = self.environ.get("SCRIPT_NAME", "") + self.environ.get("PATH_INFO", "")
        return _as_sent(path or "/")


def _as_sent(text: str) -> bytes:
    """The bytes of *text* of an environ, which has each as one character (PEP 3333).

    Some servers decode it as UTF-8 all the same.
    """
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class RateLimitMiddleware:
    """Limits the requests to *app* by *limiter*, or by a new one with the same options.

    Inside of another one it checks and denies, and the outer one writes the headers of both. A
    limiter checks a request once, however many middlewares share it.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: RequestLimiter | None = None,
        **options: Unpack[LimiterOptions],
    ) -> None:
        self.app = app
        self.limiter = limiter_of(limiter, options)
        self.limiter.check_blocking()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        limiter = self.limiter
        outer: RequestContext | None = environ.get(CONTEXT)
        own = WsgiContext(limiter, environ) if outer is None else None
        context = own or outer
        if limiter.has_limits and context is not None and limiter not in context.checked:
            rest = context.start(limiter, WsgiRequest(environ))
            if rest is not None and not drive(rest):
                denial = context.denial_response(limiter)
                lines = list(denial.headers)
                return send_response(environ, start_response, denial.status, lines, denial.body)
        if own is None:
            return self.app(environ, start_response)
        return own.serve(self.app, environ, start_response)


class WsgiContext(RequestContext):
    """The context of a WSGI request, and the `start_response` of its response.

    The response has ended when the app has made all of its body or raised an error instead, or when
    the body is closed.
    """

    error: BaseException | None = None
    has_sent = False
    """True if a part of the body is out, so that the status cannot change any more."""
    _start_response: StartResponse
    _status: str | None = None
    _headers: Headers = []  # noqa: RUF012 (replaced, never changed)

    def __init__(
        self, limiter: RequestLimiter, environ: WSGIEnvironment, *, is_managed: bool = True
    ) -> None:
        environ[CONTEXT] = self
        self.limiter = limiter
        self.is_managed = is_managed
        self.is_cross_origin = "HTTP_ORIGIN" in environ
        self._accept: str | None = environ.get("HTTP_ACCEPT")
        self._token: str | None = environ.get(_TOKEN)
        self._has_body = environ.get("REQUEST_METHOD") != "HEAD"

    def header(self, name: str) -> str | None:
        """The header *name*, `accept` or that of a debug token, of the request."""
        return self._accept if name == "accept" else self._token

    def serve(
        self, app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """The response of *app*, with the headers about limits; the request ends with it."""
        self._start_response = start_response
        try:
            result = app(environ, self.start_response)
            if not self.is_whole(result):
                return self._body(result, environ)
            if self.denial is None and not self.open_checks:  # nothing to end
                return result
            return self._whole(result) if self._knows_size(result) else self._body(result, environ)
        except BaseException as error:
            self.error = error
            self.finish()
            raise

    def start_response(
        self, status: str, headers: Headers, exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        """Start the response; again (with *exc_info*) if the app fails before it is sent."""
        self._status, self._headers = status, headers
        if self._quick is not None or not self.is_silent:
            headers = self.with_headers(headers, _code(status))
        if exc_info is None:
            write = self._start_response(status, headers)
        else:
            write = self._start_response(status, headers, exc_info)

        def writing(data: bytes) -> object:
            self.count(data)
            return write(data)

        return writing

    def count(self, chunk: bytes) -> None:
        """Record that *chunk* goes out."""
        self.has_sent = True
        if self.counts_bytes and self._has_body:
            self.sent += len(chunk)

    def finish(self) -> None:
        """Complete the request; once."""
        if self.has_end:
            drive(self.complete(self._response()))

    def is_whole(self, result: object) -> bool:
        """True if *result* is all of a body, which completes the request at once: no code of the
        app runs when it is sent."""
        return isinstance(result, list | tuple) and not hasattr(result, "close")

    def _knows_size(self, result: object) -> bool:
        """True if *result*, all of the body, need not be counted on its way."""
        if not self.counts_bytes or not self._has_body or isinstance(result, list | tuple):
            return True
        return announced_size(self._headers) is not None

    def _whole(self, result: Iterable[bytes]) -> Iterable[bytes]:
        """*result*, which is all of the body. Test clients do not close it."""
        if self.counts_bytes and self._has_body:
            is_plain = isinstance(result, list | tuple)
            size = sum(map(len, result)) if is_plain else announced_size(self._headers)
            self.sent += size or 0
        try:
            self.finish()
        except BaseException:
            if (close := getattr(result, "close", None)) is not None:
                close()
            raise
        return result

    def _body(self, result: Iterable[bytes], environ: WSGIEnvironment) -> Iterable[bytes]:
        """*result* for the server: watched, as the app may check more on its way.

        A file runs no code of the app: the server gets it as it is, to send it in its own way, if
        nothing has to be done at its end.
        """
        if not self.has_end and _is_file(result, environ):
            return result
        return SizedBody(result, self) if hasattr(result, "__len__") else Body(result, self)

    def _response(self) -> CompletedResponse:
        """The response. An error before anything was sent is a 500, however the app began."""
        if self._status is None or (self.error is not None and not self.has_sent):
            return CompletedResponse(500, (), self.error)
        return CompletedResponse(_code(self._status), tuple(self._headers), self.error)


def _code(status: str) -> int:
    code = status[:3]
    return int(code) if code.isdigit() else 500


class StreamedRequest(Protocol):
    """A request whose response is a `Body`, which counts its chunks and completes it."""

    error: BaseException | None

    def count(self, chunk: bytes, /) -> object: ...
    def finish(self) -> None: ...


class Body:
    """The body of a response, chunk by chunk as the app makes them.

    Its end completes the request, and so does closing it, which servers do when a client goes away.
    """

    __slots__ = ("_close", "_context", "_is_closed", "_iterator")

    def __init__(self, result: Iterable[bytes], context: StreamedRequest) -> None:
        self._iterator = iter(result)
        self._close: Callable[[], object] | None = getattr(result, "close", None)
        self._is_closed = False
        self._context = context

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._iterator)
        except StopIteration:
            # Before the server sends the end of the body: the next request of the client must find
            # this one settled.
            self._context.finish()
            raise
        except BaseException as error:
            self._context.error = error
            self._context.finish()
            raise
        if chunk:
            self._context.count(chunk)
        return chunk

    def close(self) -> None:
        """Close the body of the app, then complete. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._close is not None:
                self._close()
        finally:
            self._context.finish()


class SizedBody(Body):
    """A `Body` with a number of chunks: servers announce the length of a single one."""

    __slots__ = ("_size",)

    def __init__(self, result: Any, context: WsgiContext) -> None:
        super().__init__(result, context)
        self._size: Sized = result

    def __len__(self) -> int:
        return len(self._size)


def _is_file(result: object, environ: WSGIEnvironment) -> bool:
    wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(wrapper, type):
        return isinstance(result, wrapper)
    return wrapper is not None and isinstance(result, io.IOBase)  # uWSGI gives the file itself


def send_response(
    environ: WSGIEnvironment,
    start_response: StartResponse,
    status: int,
    headers: Headers,
    body: bytes,
) -> Iterable[bytes]:
    """Send a response in place of the app; without its body if the request is a HEAD."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:  # a number of the operator's own
        reason = "Refused"
    start_response(f"{status} {reason}", [*headers, ("Content-Length", str(len(body)))])
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]


class StatusApp:
    """A WSGI app that returns all limits of the caller as JSON, and consumes none.

    Mount it at a path that is exempt.
    """

    def __init__(self, limiter: RequestLimiter) -> None:
        limiter.check_blocking()
        self.limiter = limiter

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer `GET` and `HEAD`, whatever the path."""
        request = WsgiRequest(environ)
        if request.method not in ("GET", "HEAD"):
            lines = [("Allow", "GET, HEAD"), ("Content-Type", "text/plain")]
            return send_response(environ, start_response, 405, lines, b"")
        body = drive(status_body(self.limiter, request))
        lines = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        return send_response(environ, start_response, 200, lines, body)


def report(request: Any, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Report the real cost of *request*, by the name of a limit or the id of a rule.

    *request* is an environ, or has one. *amounts* is for names that are no identifiers. The last
    report before the end of the response counts. `UsageError` if no limit has checked the request.
    """
    environ = request if isinstance(request, dict) else getattr(request, "environ", None)
    context: RequestContext | None = environ.get(CONTEXT) if isinstance(environ, dict) else None
    if context is None:
        raise UsageError(
            "report: nothing limits this request; expected an environ, or a request with one, that "
            "came through a RateLimitMiddleware or RateLimits"
        )
    context.report(amounts, **named)
