"""Responses on their way out: told of limits as they begin, and seen to their end."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from headgate.enforcement.merging import with_limits
from headgate.enforcement.passage import Responded
from headgate.enforcement.passing import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.enforcement.passage import Passage
    from headgate.enforcement.wsgi.incoming import WsgiRequest
    from headgate.responses import Refusal

    Headers = list[tuple[str, str]]

_WAIT: Final = "retry-after"


def watched(
    app: WSGIApplication,
    environ: WSGIEnvironment,
    start_response: StartResponse,
    passage: Passage,
) -> Iterable[bytes]:
    """What *app* answers, with the headers about limits; *passage* is finished at its end."""
    response = Response(passage, start_response)
    try:
        return response.body(app(environ, response.start))
    except BaseException as error:
        response.error = error
        response.finish()
        raise


class Response:
    """The response to a request: its headers are completed, its end is noticed.

    It is over when its body is closed, or when the app raised an error instead of giving one.
    """

    __slots__ = ("_headers", "_passage", "_start_response", "_status", "error", "has_sent")

    def __init__(self, passage: Passage, start_response: StartResponse) -> None:
        self._passage = passage
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
            self.has_sent = True
            return write(data)

        return writing

    def body(self, result: Iterable[bytes]) -> Iterable[bytes]:
        """*result* as the server gets it: itself if there is nothing to do at its end."""
        is_begun = self._status is not None  # if not, the app may ask about more on its way
        if is_begun and not any(grant.has_an_end for grant in self._passage.grants):
            return result
        return SizedBody(result, self) if hasattr(result, "__len__") else Body(result, self)

    def finish(self) -> None:
        """Settle what is to be settled; once."""
        if self._passage.grants:
            finish(self._passage, self._responded())

    def _responded(self) -> Responded:
        """How it ended. An error before anything was sent is a 500, whatever the app began with."""
        if self._status is None or (self.error is not None and not self.has_sent):
            return Responded(500, (), self.error)
        code = self._status[:3]
        return Responded(int(code) if code.isdigit() else 500, tuple(self._headers), self.error)

    def _completed(self, status: str, headers: Headers) -> Headers:
        passage = self._passage
        if not passage.told:
            return headers
        lines = with_limits(headers, passage.gate, passage)
        if passage.refusal is not None and status < "4":  # an app may answer a refusal as it likes
            return [line for line in lines if line[0].lower() != _WAIT]
        return lines


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
            self._response.has_sent = True
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
    """The same for an app that gave a list: servers tell the length of a list of one."""

    __slots__ = ("_size",)

    def __init__(self, result: Any, response: Response) -> None:
        super().__init__(result, response)
        self._size: Sized = result

    def __len__(self) -> int:
        return len(self._size)


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
