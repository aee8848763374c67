"""Responses on their way out: told of limits as they begin, and seen to their end."""

from __future__ import annotations

import io
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from headgate.enforcement.merging import with_limits
from headgate.enforcement.passage import Responded, announced_size
from headgate.enforcement.passing import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.enforcement.passage import Passage
    from headgate.enforcement.wsgi.incoming import WsgiRequest
    from headgate.responses import Refusal

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
