"""The WSGI middleware: each request is asked about, and its response told of it.

It passes on what it is given: bodies go out chunk by chunk as the app makes them, `write` and
`wsgi.file_wrapper` work as ever. It is finished with a request when the app has returned a whole
body, a list or tuple, and else when the server closes the body.
"""

from __future__ import annotations

import io
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Unpack

from headgate.errors import UsageError
from headgate.integrations.debugging import is_debugged, with_limits
from headgate.integrations.gate import gate_of
from headgate.integrations.lazy_request import LOCAL, LazyRequest, environ_lines
from headgate.integrations.passage import Passage, Responded, announced_size
from headgate.integrations.passing import enter, finish
from headgate.integrations.status import status_body

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sized
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.engine.request import Reads
    from headgate.integrations.gate import Gate, GateOptions
    from headgate.responses import Refusal

__all__ = ["RateLimitMiddleware", "StatusApp", "WsgiRequest", "report"]


# A WSGI environ as a request.


PASSAGE: Final = "headgate"
"""Where in an environ the passage of its request is."""

_UNIX: Final = frozenset({"", "<local>", "localhost", "unix:"})
"""How servers call the peer on a Unix socket: gunicorn, Werkzeug, waitress, nginx."""

_APART: Final = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}
"""The headers that WSGI keeps under names of their own."""


class WsgiRequest(LazyRequest):
    """The request that *environ* is about. The environ is there for whoever needs what a server or
    a framework put in it: `request.environ["REMOTE_USER"]`."""

    __slots__ = ("environ",)

    def __init__(self, environ: WSGIEnvironment) -> None:
        super().__init__()
        self._set("environ", environ)

    environ: WSGIEnvironment

    @property
    def method(self) -> str:
        """The method."""
        return str(self.environ.get("REQUEST_METHOD", "GET")).upper()

    @property
    def host(self) -> str:
        """What the client takes the server for."""
        return self.header("host") or ""

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        address = str(self.environ.get("REMOTE_ADDR", ""))
        return LOCAL if address in _UNIX else address

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines all, joined by commas.

        A name with an underscore is never found: WSGI does not tell it from one with a dash.
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
        if type(self) is not WsgiRequest:  # a subclass may read something else
            return super().parts(reads)
        environ = self.environ
        found = (
            WsgiRequest,
            environ.get("REQUEST_METHOD", "GET"),
            environ.get("SCRIPT_NAME", ""),
            environ.get("PATH_INFO", ""),
            environ.get("REMOTE_ADDR", ""),
            *environ_lines(environ, reads),
        )
        return (*found, *self._attributes_read(reads)) if reads.attributes else found

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
    """The bytes that *text* of an environ stands for, each as one character (PEP 3333).

    There are servers that decode it as if it were UTF-8 all the same.
    """
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def passage_in(environ: WSGIEnvironment) -> Passage | None:
    """The passage of the request of *environ*, if a part of the app has asked about it."""
    found: Passage | None = environ.get(PASSAGE)
    return found


# Responses on their way out: told of limits as they begin, and seen to their end.


if TYPE_CHECKING:
    Headers = list[tuple[str, str]]


def is_whole(result: object) -> bool:
    """Whether *result* is all of a body: nothing of the app's runs when it is sent."""
    return isinstance(result, list | tuple) and not hasattr(result, "close")


def watched(
    app: WSGIApplication,
    environ: WSGIEnvironment,
    start_response: StartResponse,
    passage: Passage,
    *,
    knows_whole: Callable[[object], bool] = is_whole,
) -> Iterable[bytes]:
    """What *app* answers, with the headers about limits; *passage* is finished at its end.

    *knows_whole* tells a body that is all there, which ends the matter at once.
    """
    has_body = environ.get("REQUEST_METHOD") != "HEAD"
    response = Response(passage, start_response, has_body=has_body)
    try:
        result = app(environ, response.start)
        if knows_whole(result) and response.knows_size(result):
            return response.whole(result)
        return response.body(result, environ)
    except BaseException as error:
        response.error = error
        response.finish()
        raise


class Response:
    """The response to a request: its headers are completed, its end is noticed.

    It is over when the app has given all of its body or raised an error instead, and else when the
    body is closed.
    """

    __slots__ = (
        "_has_body",
        "_headers",
        "_passage",
        "_start_response",
        "_status",
        "error",
        "has_sent",
    )

    def __init__(
        self, passage: Passage, start_response: StartResponse, *, has_body: bool = True
    ) -> None:
        self._passage = passage
        self._has_body = has_body  # that of a HEAD is not sent
        self._start_response = start_response
        self._status: str | None = None
        self._headers: Headers = []
        self.error: BaseException | None = None
        self.has_sent = False
        """Whether a part of the body is out, so that the status cannot be another any more."""

    def start(
        self, status: str, headers: Headers, exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        """What the app calls to begin, and again (with *exc_info*) if it thinks better of it."""
        self._status, self._headers = status, headers
        completed = self._completed(status, headers)
        if exc_info is None:
            write = self._start_response(status, completed)
        else:
            write = self._start_response(status, completed, exc_info)

        def writing(data: bytes) -> object:
            self.sends(data)
            return write(data)

        return writing

    def sends(self, chunk: bytes) -> None:
        """Note that *chunk* goes out."""
        self.has_sent = True
        if self._passage.counts_bytes and self._has_body:
            self._passage.sent += len(chunk)

    def knows_size(self, result: object) -> bool:
        """Whether it need not be watched how long *result*, all of the body, is."""
        if not self._passage.counts_bytes or not self._has_body or isinstance(result, list | tuple):
            return True
        return announced_size(self._headers) is not None

    def whole(self, result: Iterable[bytes]) -> Iterable[bytes]:
        """*result*, which is all of the body: the app has nothing more to say.

        Not all wait to see it closed: test clients, for one, do not close.
        """
        if self._passage.counts_bytes and self._has_body:
            is_plain = isinstance(result, list | tuple)
            size = sum(map(len, result)) if is_plain else announced_size(self._headers)
            self._passage.sent += size or 0
        try:
            self.finish()
        except BaseException:
            _close(result)
            raise
        return result

    def body(self, result: Iterable[bytes], environ: WSGIEnvironment) -> Iterable[bytes]:
        """*result* as the server gets it: watched, as the app may ask about more on its way.

        A file runs nothing of the app's. The server gets it as it is, to send it in its own way,
        if there is nothing to do at its end.
        """
        if not self._passage.has_an_end and _is_file(result, environ):
            return result
        return SizedBody(result, self) if hasattr(result, "__len__") else Body(result, self)

    def finish(self) -> None:
        """Settle what is to be settled, and has not been."""
        if self._passage.has_an_end:
            finish(self._passage, self._responded())

    def _responded(self) -> Responded:
        """How it ended. An error before anything was sent is a 500, whatever the app began with."""
        if self._status is None or (self.error is not None and not self.has_sent):
            return Responded(500, (), self.error)
        code = self._status[:3]
        return Responded(int(code) if code.isdigit() else 500, tuple(self._headers), self.error)

    def _completed(self, status: str, headers: Headers) -> Headers:
        passage = self._passage
        if passage.is_silent:
            return headers
        code = status[:3]
        return with_limits(headers, passage.gate, passage, int(code) if code.isdigit() else 500)


class Body:
    """The body of a response, chunk by chunk as the app makes them.

    Closing it, which servers do also when a client goes away, closes the app's and ends the matter.
    """

    __slots__ = ("_close", "_is_closed", "_iterator", "_response")

    def __init__(self, result: Iterable[bytes], response: Response) -> None:
        self._iterator = iter(result)
        self._close: Callable[[], object] | None = getattr(result, "close", None)
        self._is_closed = False
        self._response = response

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._iterator)
        except StopIteration:
            if self._close is None:
                self._response.finish()  # nothing follows, and not all servers close
            raise
        except BaseException as error:
            self._response.error = error
            raise
        if chunk:
            self._response.sends(chunk)
        return chunk

    def close(self) -> None:
        """Close what the app gave, then finish. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._close is not None:
                self._close()
        finally:
            self._response.finish()


class SizedBody(Body):
    """The same for a body that knows how many chunks it has: servers tell the length of one."""

    __slots__ = ("_size",)

    def __init__(self, result: Any, response: Response) -> None:
        super().__init__(result, response)
        self._size: Sized = result

    def __len__(self) -> int:
        return len(self._size)


def _is_file(result: object, environ: WSGIEnvironment) -> bool:
    wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(wrapper, type):
        return isinstance(result, wrapper)
    return wrapper is not None and isinstance(result, io.IOBase)  # uWSGI gives the file itself


def _close(result: object) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()


def refuse(
    request: WsgiRequest, start_response: StartResponse, refusal: Refusal
) -> Iterable[bytes]:
    """Send *refusal* in place of what the app would have said."""
    length = ("Content-Length", str(len(refusal.body)))
    start_response(status_line(refusal.status), [*refusal.headers, length])
    return [] if request.method == "HEAD" else [refusal.body]


def status_line(status: int) -> str:
    """*status* with its reason: `429 Too Many Requests`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:  # a number of the operator's own
        return f"{status} Refused"


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
    _ = gate.engine
    return gate


# A page that tells callers of their limits: `GET /rate_limit`.


class StatusApp:
    """A WSGI app that answers with every limit that *gate* has for the caller, as JSON.

    Nothing is consumed. It is mounted where the app likes it, at a path that is exempt.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = blocking(gate)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer `GET` and `HEAD`, whatever the path."""
        request = WsgiRequest(environ)
        if request.method not in ("GET", "HEAD"):
            lines = [("Allow", "GET, HEAD"), ("Content-Type", "text/plain")]
            start_response(status_line(405), [*lines, ("Content-Length", "0")])
            return []
        body = status_body(self.gate, request)
        lines = [
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-store"),
            ("Content-Length", str(len(body))),
        ]
        start_response(status_line(200), lines)
        return [] if request.method == "HEAD" else [body]


# What a request really cost, said by the app when it knows.


def report(request: Any, amounts: Mapping[str, int] | None = None, /, **named: int) -> None:
    """Say what *request* really cost, by the name of an allowance or the id of a rule.

    *request* is an environ, or anything that has one. *amounts* is for names that are no
    identifiers. What is said last counts; after the end of the response nothing does. `UsageError`
    if no limit has been asked about the request.
    """
    environ = request if isinstance(request, dict) else getattr(request, "environ", None)
    passage = passage_in(environ) if isinstance(environ, dict) else None
    if passage is None:
        raise UsageError(
            "report: nothing limits this request; expected an environ, or a request with one, that "
            "came through a RateLimitMiddleware or RateLimits"
        )
    passage.report({**(amounts or {}), **named})
