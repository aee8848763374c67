"""Limits in a Flask app: for all of it, for some of its views and blueprints, for none of some.

    limits = RateLimits(app, limits="100/minute", exempt=["/health"])

    @app.post("/login")
    @limits.limit("5/minute")
    def login(): ...

Each request is checked before it is served, when Flask knows its route. Headers are written, and
requests completed, around the `wsgi_app` of the app: there streams, files, errors and clients that
go away all end in the same way.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections import Counter
from functools import cache, lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, Unpack, cast
from weakref import WeakSet

from headgate.errors import UsageError, not_installed

try:
    from flask import Blueprint, current_app, has_request_context, request
except ModuleNotFoundError as error:
    raise not_installed("flask", error) from error

from flask.views import View
from werkzeug.exceptions import HTTPException, default_exceptions
from werkzeug.wsgi import ClosingIterator

from headgate.integrations.decorators import (
    MOST_NAMED,
    LimitedFunction,
    chain,
    function_names,
    inner_function,
    is_async,
    limited_in,
)
from headgate.integrations.exemptions import EXEMPT_ONES, has_mark, is_preflight, mark_exempt
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_limiter import limiter_of
from headgate.integrations.route_limit import LimitOptions, RouteLimit, shown_name
from headgate.integrations.wsgi import (
    CONTEXT,
    WsgiContext,
    WsgiRequest,
    report,
)
from headgate.runtime.drivers import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from flask import Flask, Request, Response

    from headgate.engine.stack import Limits
    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter
    from headgate.responses import DenialResponse
    from headgate.runtime.effects import Effects

__all__ = ["LimitOptions", "RateLimits", "report"]

F = TypeVar("F")

EXTENSION: Final = "headgate"
"""The key of `app.extensions` under which the extension is."""


class RateLimits:
    """Limits the requests to *app* by *limiter*, or by a new one with the same options.

    Without *app*, call `init_app` for each app. *limits_static*: True to count files of static
    folders like other requests.
    """

    def __init__(
        self,
        app: Flask | None = None,
        limiter: RequestLimiter | None = None,
        *,
        limits_static: bool = False,
        **options: Unpack[LimiterOptions],
    ) -> None:
        self._limiter, self._options = limiter, options
        self._limits_static = limits_static
        self._functions = LimitedFunctions()
        if limiter is not None:
            limiter_of(limiter, options)  # reports options that do not go together
        if app is not None:
            self.init_app(app)

    def init_app(
        self, app: Flask, limiter: RequestLimiter | None = None, **options: Unpack[LimiterOptions]
    ) -> None:
        """Limit the requests to *app*. Options given here replace those of the class.

        Each app has a limiter of its own unless one is given. `UsageError` if the app has limits.
        """
        if EXTENSION in app.extensions:
            raise UsageError(f"the app {app.name!r} has its RateLimits already: one is enough")
        if limiter is None and self._limiter is None:
            limiter = limiter_of(
                None, cast("LimiterOptions", _requestless({**self._options, **options}))
            )
        else:
            limiter = limiter_of(limiter or self._limiter, options)
        limiter.check_blocking()
        state = _State(limiter, self._limits_static, self._functions, set(), {})
        app.extensions[EXTENSION] = state
        app.before_request(functools.partial(_check_app, app, state))
        # The first one is called last, with the response that is sent.
        app.after_request_funcs.setdefault(None, []).insert(0, _record_content)
        app.wsgi_app = _CompletingApp(app.wsgi_app, limiter)  # type: ignore[method-assign]

    def limit(
        self, limits: Limits | Callable[..., Limits | None], **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]:
        """Limit a view, or all views of a blueprint together.

        The options are those of a `RouteLimit`; functions are called with Flask's request, or
        without arguments, and are not async. Several on one view are one check, all or nothing. A
        denial is raised: handlers for 429 may answer it. Outside of requests a limited function
        works as if it had no limit.
        """
        one = RouteLimit(**_requestless({"limits": limits, **options}))
        one.check_blocking()
        limit_view = LimitedView.decorator(one)

        def decorate(target: F) -> F:
            if isinstance(target, Blueprint):
                limit_blueprint(target, one)
                return target
            if isinstance(target, type) and issubclass(target, View):
                raise UsageError(
                    f"{target.__qualname__} is a class of views: "
                    "say decorators = [limits.limit(...)] in it"
                )
            view = limit_view(target)
            self._functions.add(target, view)
            return view

        return decorate

    def exempt(self, target: F) -> F:
        """Exempt a view, a class of views or a blueprint from the limits of the app, and from those
        of its blueprints. Its own limits stay."""
        return mark_exempt(target)

    @property
    def status(self) -> Callable[[], Response]:
        """A view of the limits of a caller, which consumes none:
        `app.add_url_rule("/rate_limit", view_func=limits.status)`."""
        return _status_view()

    def limiter(self, app: Flask) -> RequestLimiter:
        """The limiter of *app*: to close it, or to look at it in tests."""
        return _state_of(app).limiter


def _requestless(options: dict[str, Any]) -> dict[str, Any]:
    """*options* in which functions without parameters take a request: Flask has its own."""
    found = dict(options)
    for option in ("limits", "key", "cost", "exempt_when"):
        function = found.get(option)
        if not callable(function):
            continue
        try:
            has_parameters = bool(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            continue
        if not has_parameters and not inspect.iscoroutinefunction(function):
            found[option] = functools.partial(_call_without, function)
    return found


def _call_without(function: Callable[[], Any], _request: object) -> Any:
    return function()


@cache
def _status_view() -> Callable[[], Response]:
    # Made when it is used: as long as no view is exempt, exemptions take no time.
    @mark_exempt
    def status() -> Response:
        limiter = _state_of(_app()).limiter
        body = drive(status_body(limiter, _incoming(limiter, _request())))
        headers = {"Cache-Control": "no-store"}
        return current_app.response_class(body, headers=headers, mimetype="application/json")

    return status


# The limits of the whole app.


class _State(NamedTuple):
    """The state of an app: its limiter, if static files are limited, its limited functions."""

    limiter: RequestLimiter
    limits_static: bool
    functions: LimitedFunctions
    checked: set[str | None]
    """The endpoints whose routes are known to be right: see `LimitedFunctions.check_route`."""
    counters: dict[tuple[LimitedView, str | None], str]
    """The counters of views, by endpoint."""


def _state_of(app: Flask) -> _State:
    state: _State | None = app.extensions.get(EXTENSION)
    if state is None:
        raise UsageError(
            f"the app {app.name!r} has views with limits and no RateLimits: "
            "call limits.init_app(app) when it is made"
        )
    return state


def _app() -> Flask:
    """The app itself: each access by Flask's proxy takes 0.5 us."""
    return current_app._get_current_object()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def _request() -> Request:
    """The request itself."""
    return request._get_current_object()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def _check_app(app: Flask, state: _State) -> None:
    """Check the request by the limits of the app, unless a middleware has done so."""
    native, limiter = _request(), state.limiter
    endpoint = native.endpoint
    if endpoint not in state.checked:
        state.functions.check_route(app, endpoint)
        state.checked.add(endpoint)
    context = _context_of(limiter, native)
    if not limiter.has_limits or limiter in context.checked or _is_exempt(app, state, native):
        return
    _deny_unless(context.start(limiter, _incoming(limiter, native)), context, limiter)


def _deny_unless(
    rest: Effects[bool] | None, context: RequestContext, limiter: RequestLimiter
) -> None:
    if rest is not None and not drive(rest):
        raise _denial_of(context.denial_response(limiter))


def _context_of(limiter: RequestLimiter, native: Request) -> RequestContext:
    """The context of a request; a new one if it did not come through the `wsgi_app` of the app."""
    context: RequestContext | None = native.environ.get(CONTEXT)
    return context or WsgiContext(limiter, native.environ, is_managed=False)


class FlaskRequest(WsgiRequest):
    """A view of *native*, a request of Flask."""

    __slots__ = ("native",)

    def __init__(self, native: Request) -> None:
        super().__init__(native.environ)
        self.native = native

    def cookies(self) -> Mapping[str, str]:
        """The cookies as Flask reads them."""
        return self.native.cookies

    def _place(self) -> tuple[Any, ...]:
        environ = self.environ
        return FlaskRequest, self.method, environ.get("SCRIPT_NAME"), environ.get("PATH_INFO")


def _incoming(limiter: RequestLimiter, native: Request) -> FlaskRequest:
    """The request as rules see it, with the template of its route if that may be read."""
    incoming = FlaskRequest(native)
    if limiter.reads_attributes and (rule := native.url_rule) is not None:
        incoming.add_attributes({"route": f"{native.root_path.rstrip('/')}{rule.rule}"})
    return incoming


def _denial_of(denial: DenialResponse) -> HTTPException:
    """The error to raise for *denial*: for 429 a `TooManyRequests` of Werkzeug.

    Without a handler of the app it is answered with the denial. A handler finds the message in
    `description`, and the seconds to wait, or None, in `retry_after`.
    """
    response = current_app.response_class(denial.body, denial.status, headers=list(denial.headers))
    shown = json.loads(denial.body)
    error = _kind(denial.status)(shown.get("message") or shown.get("detail"), response)
    error.retry_after = shown.get("retry_after")  # type: ignore[attr-defined]
    return error


@lru_cache(maxsize=16)
def _kind(status: int) -> type[HTTPException]:
    """The class of denials with *status*: handlers are found by it."""
    known = default_exceptions.get(status, HTTPException)
    return type("Denied", (known,), {"code": status, "__module__": __name__})


def _is_exempt(app: Flask, state: _State, native: Request) -> bool:
    """True if the view of the request, or a blueprint that it is in, is exempt."""
    endpoint = native.endpoint
    if endpoint is None:
        return False
    if EXEMPT_ONES:
        view = app.view_functions.get(endpoint)
        own = (view, getattr(view, "__func__", None), getattr(view, "view_class", None))
        blueprints = [app.blueprints.get(name) for name in native.blueprints]
        if any(has_mark(one) for one in (*own, *blueprints)):
            return True
    return endpoint.endswith("static") and _is_static(app, state, endpoint)


def _is_static(app: Flask, state: _State, endpoint: str) -> bool:
    """True if *endpoint* is Flask's own for a static folder, and that is not limited."""
    owner, _, name = endpoint.rpartition(".")
    if name != "static" or state.limits_static:
        return False
    holder = app.blueprints.get(owner) if owner else app
    return holder is not None and holder.has_static_folder


class _CompletingApp:
    """The `wsgi_app` of an app, with headers, and with requests completed at the end."""

    def __init__(self, app: WSGIApplication, limiter: RequestLimiter) -> None:
        self._app = app
        self._limiter = limiter

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if CONTEXT in environ:  # a middleware further out does it
            return self._app(environ, start_response)

        return _FlaskContext(self._limiter, environ).serve(self._app, environ, start_response)


class _FlaskContext(WsgiContext):
    """The context of a request to a Flask app."""

    has_content = False
    """True if the response of Flask is no stream, and has all of its content."""

    def is_whole(self, result: object) -> bool:
        """True if *result* is all of a body. A middleware between us and Flask may have made
        something else of it."""
        return (self.has_content and type(result) is ClosingIterator) or super().is_whole(result)


def _record_content(response: Response) -> Response:
    """Record if *response* has all of its content."""
    native = _request()
    context = native.environ.get(CONTEXT)
    if isinstance(context, _FlaskContext):
        is_empty = native.method == "HEAD"
        context.has_content = response.is_sequence or is_empty or _was_raised(response)
    return response


def _was_raised(response: Response) -> bool:
    """True if *response* is that of an error: Flask calls those as apps, and has an iterator."""
    is_called = isinstance(response.response, ClosingIterator)
    return is_called and response.status_code >= 300 and response.content_length is not None


# The limits of views and of blueprints. Counters have the same names in every process.


class LimitedFunctions:
    """The functions that a `RateLimits` has limited.

    Functions with one name (closures, lambdas, partials of one function) are numbered in the order
    in which they are limited, which is that of the program.
    """

    def __init__(self) -> None:
        self._known: Counter[str] = Counter()
        self._plain: WeakSet[FunctionType] = WeakSet()

    def add(self, target: object, view: object) -> None:
        """Record *view*, which is *target* with a limit, and name its counters.

        A function that is limited while a request is served has no number, as each request would
        have a new one, and it stays a view without a limit.
        """
        limited = limited_in(view, LimitedView)
        if limited is not None and len(limited.limits) == 1:
            limited.counter = self.counter(target)
        if not has_request_context():
            self._plain.update(one for one in chain(target) if isinstance(one, FunctionType))

    def counter(self, function: object) -> str:
        """The name of the counters of *function*."""
        counter = function_names(function).counter
        if has_request_context():
            return counter
        number = self._known[counter]
        self._known[counter] += 1
        return f"{counter}#{number}" if number else counter

    def check_route(self, app: Flask, endpoint: str | None) -> None:
        """Raise `UsageError` if the view of this request was limited after it became a route.

        The route is then that of the function without the limit. A function that is a view both
        with and without it is meant to be.
        """
        views = app.view_functions
        view = views.get(endpoint or "")
        if not isinstance(view, FunctionType) or view not in self._plain:
            return
        if not any(_has_limit_around(other, view) for other in views.values()):
            raise UsageError(
                f"the view {endpoint!r} has a limit that its route does not know of: put "
                "@limits.limit(...) below @app.route(...); if it is to have none, make the route "
                "that of another function"
            )


class LimitedView(LimitedFunction):
    """A function with limits. Its counters are named after its endpoint, or else `counter`."""

    def wrapper(self) -> Callable[..., Any]:
        """The view for Flask."""
        function, title = self.function, _title_of(self.function)
        shown, is_async_view = shown_name(title), is_async(function)

        def view(*args: Any, **kwargs: Any) -> Any:
            if not has_request_context():  # a command, a test, a job
                return function(*args, **kwargs)
            app, native = _app(), _request()
            state, endpoint = _state_of(app), native.endpoint
            counter = state.counters.get((self, endpoint))
            if counter is None:
                counter = self._counter(app, endpoint, view)
                if len(state.counters) < MOST_NAMED:
                    state.counters[self, endpoint] = counter
            _check(self, state.limiter, native, counter, shown)
            run = app.ensure_sync(function) if is_async_view else function
            return run(*args, **kwargs)

        view.__name__ = title  # partials have none, and Flask looks for one
        return view

    def _counter(self, app: Flask, endpoint: str | None, view: object) -> str:
        if endpoint is not None:
            served = app.view_functions.get(endpoint)
            if served is view or any(one is view for one in chain(served)):
                return f"/endpoint {app.name} {endpoint}"
        return self.counter


class BlueprintLimits(LimitedFunction):
    """The limits of all views of a blueprint, and of the blueprints in it."""

    function: Blueprint  # type: ignore[assignment]

    def __call__(self) -> None:
        """Check the request, before it is served."""
        app, native = _app(), _request()
        state = _state_of(app)
        if _is_exempt(app, state, native):
            return
        known = app.blueprints
        names = (name for name in native.blueprints if known.get(name) is self.function)
        name = next(names, self.function.name)  # with those of its parents
        is_automatic = getattr(native.url_rule, "provide_automatic_options", False)
        is_apart = (  # Flask answers it itself, without a view
            is_automatic
            and not state.limiter.limits_preflights
            and is_preflight(WsgiRequest(native.environ))
        )
        counter, shown = f"/blueprint {app.name} {name}", shown_name(name.rpartition(".")[2])
        _check(self, state.limiter, native, counter, shown, is_apart=is_apart)


def limit_blueprint(blueprint: Blueprint, one: RouteLimit) -> None:
    """Check *one* before the views of *blueprint*, in one check with the limit added before it."""
    checks = blueprint.before_request_funcs.setdefault(None, [])
    latest = checks[-1] if checks else None
    if isinstance(latest, BlueprintLimits):
        checks[-1] = latest.with_limit(one)
    else:
        first = sum(len(other.limits) for other in checks if isinstance(other, BlueprintLimits))
        blueprint.before_request(BlueprintLimits(blueprint, (one,), first))  # type: ignore[arg-type]


def _check(
    limited: LimitedFunction,
    limiter: RequestLimiter,
    native: Request,
    counter: str,
    shown: str,
    *,
    is_apart: bool = False,
) -> None:
    """Check the request by the limits of *limited*, as one; raise the denial."""
    incoming, context = _incoming(limiter, native), _context_of(limiter, native)
    named = limited.named(context, counter, shown)
    rest = context.start_route(limiter, named, native, incoming, is_preflight=is_apart)
    _deny_unless(rest, context, limiter)


def _title_of(function: object) -> str:
    """The name of *function* for headers."""
    named = inner_function(function)
    return str(getattr(named, "__name__", type(named).__name__))


def _has_limit_around(outer: object, view: object) -> bool:
    """True if *outer* is *view* with a limit around it."""
    has_limit = False
    for one in chain(outer):
        if one is view:
            return has_limit
        has_limit = has_limit or limited_in(one, LimitedView) is not None
    return False
