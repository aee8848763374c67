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
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar, Unpack, cast
from weakref import WeakSet

from headgate.errors import UsageError, not_installed

try:
    from flask import Blueprint, current_app, has_request_context, request
except ModuleNotFoundError as error:
    raise not_installed("flask", error) from error

from flask.views import View
from werkzeug.exceptions import HTTPException, default_exceptions
from werkzeug.wsgi import ClosingIterator

from headgate.integrations.decorated import (
    Decorated,
    added,
    chain,
    count_below,
    decorated_in,
    inner_function,
    mark,
)
from headgate.integrations.exemptions import is_preflight
from headgate.integrations.rate_limit_status import status_body
from headgate.integrations.request_limiter import limiter_of
from headgate.integrations.route_limit import Names, RouteLimit, free_name, shown_name
from headgate.integrations.wsgi import (
    CONTEXT,
    WsgiContext,
    WsgiRequest,
    context_in,
    is_whole,
    report,
)
from headgate.runtime.drivers import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from flask import Flask, Request, Response

    from headgate.decision import HeaderMode
    from headgate.engine.rule import Mode
    from headgate.engine.stack import Limits
    from headgate.integrations.decorated import Named
    from headgate.integrations.request_context import RequestContext
    from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter
    from headgate.integrations.route_limit import ChargeWhen, KeyValue
    from headgate.policy.model import OnStoreFailure
    from headgate.responses import Refusal
    from headgate.runtime.effects import Effects
    from headgate.units import Seconds

__all__ = ["LimitOptions", "RateLimits", "report"]

F = TypeVar("F")

EXTENSION: Final = "headgate"
"""The key of `app.extensions` under which the extension is."""

_EXEMPT: Final = "__headgate_exempt__"
_WHOLE: Final = "headgate.whole"
"""In an environ: the response of Flask is no stream, and has all of its content."""


class LimitOptions(TypedDict, total=False):
    """The options of a `RouteLimit` besides its limits; functions may have no parameters."""

    key: Callable[..., KeyValue] | None
    cost: int | Callable[..., int]
    name: str | None
    exempt_when: Callable[..., bool] | None
    charge_when: ChargeWhen | None
    is_estimate: bool
    ttl: Seconds
    mode: Mode
    on_store_failure: OnStoreFailure
    headers: HeaderMode


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
        state = _State(limiter, self._limits_static, self._functions)
        app.extensions[EXTENSION] = state
        app.before_request(functools.partial(_check_app, app, state))
        # The first one is called last, with the response that is sent.
        app.after_request_funcs.setdefault(None, []).insert(0, _note_whole)
        app.wsgi_app = _Completing(app.wsgi_app, limiter)  # type: ignore[method-assign]

    def limit(
        self, limits: Limits | Callable[..., Limits | None], **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]:
        """Limit a view, or all views of a blueprint together.

        The options are those of a `RouteLimit`; functions are called with Flask's request, or
        without arguments, and are not async. Several on one view are one check, all or nothing. A
        denial is raised: handlers for 429 may answer it. Outside of requests a limited function
        works as if it had no limit.
        """
        one: RouteLimit[Request] = RouteLimit(**_requestless({"limits": limits, **options}))
        one.check_blocking()

        def decorate(target: F) -> F:
            return _limited(target, one, self._functions)

        return decorate

    def exempt(self, target: F) -> F:
        """Exempt a view, a class of views or a blueprint from the limits of the app, and from those
        of its blueprints. Its own limits stay."""
        return _mark_exempt(target)

    def status(self) -> Response:
        """A view of the limits of a caller, which consumes none:
        `app.add_url_rule("/rate_limit", view_func=limits.status)`."""
        limiter = _state_of(_app()).limiter
        body = drive(status_body(limiter, _incoming(limiter, _request())))
        headers = {"Cache-Control": "no-store"}
        return current_app.response_class(body, headers=headers, mimetype="application/json")

    setattr(status, _EXEMPT, True)

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


# The limits of the whole app.


class _State(NamedTuple):
    """The state of an app: its limiter, if static files are limited, its limited functions."""

    limiter: RequestLimiter
    limits_static: bool
    functions: LimitedFunctions


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
    state.functions.check_route(app, native.endpoint)
    context = context_in(native.environ)
    if (context is not None and limiter in context.checked) or _is_exempt(app, state, native):
        return
    incoming = _incoming(limiter, native)
    context = context or _new_context(limiter, incoming)
    _deny_unless(context.start(limiter, incoming), context, limiter)


def _deny_unless(
    rest: Effects[bool] | None, context: RequestContext, limiter: RequestLimiter
) -> None:
    if rest is not None and not drive(rest):
        raise _denial_of(context.denial_response(limiter))


def _new_context(limiter: RequestLimiter, incoming: WsgiRequest) -> WsgiContext:
    """The context of a request that did not come through the `wsgi_app` of the app."""
    context = WsgiContext(limiter, incoming)
    context.is_managed = False
    return context


def _incoming(limiter: RequestLimiter, native: Request) -> WsgiRequest:
    """The request as rules see it, with the template of its route if that may be read."""
    incoming = WsgiRequest(native.environ)
    if limiter.reads_attributes and (rule := native.url_rule) is not None:
        incoming.add_attributes({"route": f"{native.root_path.rstrip('/')}{rule.rule}"})
    return incoming


def _denial_of(denial: Refusal) -> HTTPException:
    """The error to raise for *denial*: for 429 a `TooManyRequests` of Werkzeug.

    Without a handler of the app it is answered with the denial. A handler finds the message in
    `description`, and the seconds to wait, or None, in `retry_after`.
    """
    response = current_app.response_class(denial.body, denial.status, headers=list(denial.headers))
    told = json.loads(denial.body)
    error = _kind(denial.status)(told.get("message") or told.get("detail"), response)
    error.retry_after = told.get("retry_after")  # type: ignore[attr-defined]
    return error


@lru_cache(maxsize=16)
def _kind(status: int) -> type[HTTPException]:
    """The class of denials with *status*: handlers are found by it."""
    known = default_exceptions.get(status, HTTPException)
    return type("Denied", (known,), {"code": status, "__module__": __name__})


def _mark_exempt(target: F) -> F:
    setattr(target, _EXEMPT, True)
    return target


def _is_exempt(app: Flask, state: _State, native: Request) -> bool:
    """True if the view of the request, or a blueprint that it is in, is exempt."""
    endpoint = native.endpoint
    if endpoint is None:
        return False
    view = app.view_functions.get(endpoint)
    if _is_marked(view) or _is_marked(getattr(view, "view_class", None)):
        return True
    if "." in endpoint:
        for name in native.blueprints:
            if _is_marked(app.blueprints.get(name)):
                return True
    return endpoint.endswith("static") and _is_static(app, state, endpoint)


def _is_marked(target: object) -> bool:
    """True if *target* itself is marked: a class does not inherit it. A method has the marks of its
    function."""
    return getattr(getattr(target, "__func__", target), "__dict__", {}).get(_EXEMPT) is True


def _is_static(app: Flask, state: _State, endpoint: str) -> bool:
    """True if *endpoint* is Flask's own for a static folder, and that is not limited."""
    owner, _, name = endpoint.rpartition(".")
    if name != "static" or state.limits_static:
        return False
    holder = app.blueprints.get(owner) if owner else app
    return holder is not None and holder.has_static_folder


class _Completing:
    """The `wsgi_app` of an app, with headers, and with requests completed at the end."""

    def __init__(self, app: WSGIApplication, limiter: RequestLimiter) -> None:
        self._app = app
        self._limiter = limiter

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if CONTEXT in environ:  # a middleware further out does it
            return self._app(environ, start_response)

        def knows_whole(result: object) -> bool:
            # A middleware between us and Flask may have made something else of it.
            is_flasks = type(result) is ClosingIterator and environ.get(_WHOLE, False)
            return is_flasks or is_whole(result)

        context = WsgiContext(self._limiter, WsgiRequest(environ))
        return context.serve(self._app, environ, start_response, knows_whole)


def _note_whole(response: Response) -> Response:
    """Record in the environ if *response* has all of its content."""
    native = _request()
    is_empty = native.method == "HEAD"
    native.environ[_WHOLE] = response.is_sequence or is_empty or _was_raised(response)
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

    def add(self, function: object) -> None:
        """Record that *function* has a limit around it, unless a request is being served."""
        if isinstance(function, FunctionType) and not has_request_context():
            self._plain.add(function)

    def counter(self, function: object) -> str:
        """The name of the counters of *function*.

        A function that is made while a request is served has no number: each request would have
        a new one.
        """
        named = inner_function(function)
        path = getattr(named, "__qualname__", type(named).__qualname__)
        counter = f":{getattr(named, '__module__', '')}.{path}"
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


class LimitedView(Decorated):
    """A function with limits. Its counters are named after its endpoint, or *counter*."""

    def __init__(
        self, function: Callable[..., Any], limits: tuple[Any, ...], first: int, counter: str
    ) -> None:
        super().__init__(function, limits, first)
        self.title = _title_of(function)
        self.counter = counter

    def counter_of(self, app: Flask, endpoint: str | None, wrapper: object) -> str:
        """The name of its counters: a view is counted by its endpoint, any other function by its
        name."""
        if endpoint is not None:
            view = app.view_functions.get(endpoint)
            if view is wrapper or any(one is wrapper for one in chain(view)):
                return f"/endpoint {app.name} {endpoint}"
        return self.counter


class BlueprintLimits:
    """The limits of all views of a blueprint, and of the blueprints in it."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        before = blueprint.before_request_funcs.get(None, ())
        first = sum(len(one.limits) for one in before if isinstance(one, BlueprintLimits))
        self._decorated = Decorated(self, (), first)

    @property
    def limits(self) -> tuple[RouteLimit[Any], ...]:
        return self._decorated.limits

    def add(self, one: RouteLimit[Request]) -> None:
        """Check *one* too."""
        before = self._decorated
        self._decorated = Decorated(self, added(before.limits, one), before.first)

    def __call__(self) -> None:
        """Check the request, before it is served."""
        app, native = _app(), _request()
        state = _state_of(app)
        if _is_exempt(app, state, native):
            return
        known = app.blueprints
        names = (name for name in native.blueprints if known.get(name) is self._blueprint)
        name = next(names, self._blueprint.name)  # with those of its parents
        counter, title = f"/blueprint {app.name} {name}", name.rpartition(".")[2]
        is_automatic = getattr(native.url_rule, "provide_automatic_options", False)
        is_apart = (  # Flask answers it itself, without a view
            is_automatic
            and not state.limiter.limits_preflights
            and is_preflight(WsgiRequest(native.environ))
        )
        _check(self._decorated, state.limiter, native, counter, title, is_apart=is_apart)


def _check(
    decorated: Decorated,
    limiter: RequestLimiter,
    native: Request,
    counter: str,
    title: str,
    *,
    is_apart: bool = False,
) -> None:
    """Check the request by the limits of *decorated*, as one; raise the denial."""
    incoming = _incoming(limiter, native)
    context = context_in(native.environ) or _new_context(limiter, incoming)
    named = _named(decorated, context, counter, title)
    rest = context.start_route(limiter, named, native, incoming, is_preflight=is_apart)
    _deny_unless(rest, context, limiter)


def _named(decorated: Decorated, context: RequestContext, counter: str, title: str) -> Named:
    if decorated.is_unnamed and context.is_silent:  # no name is taken
        return decorated.named(context, shown_name(title), counter)
    limits = decorated.limits
    taken = {told.name for told in context.told} | {one.name for one in limits}
    named = []
    for number, limit in enumerate(limits, decorated.first):
        names = limit.own_names
        if limit.name is None:
            shown = free_name(shown_name(title), taken)
            taken.add(shown)
            names = Names(shown, f"{counter}#{number}")
        named.append((limit, names))
    return named


def _limited(target: F, one: RouteLimit[Request], known: LimitedFunctions) -> F:
    """*target*, a view or a blueprint, with one limit more."""
    if isinstance(target, Blueprint):
        before = target.before_request_funcs.get(None, [])
        latest = before[-1] if before else None
        if not isinstance(latest, BlueprintLimits):
            latest = BlueprintLimits(target)
            target.before_request(latest)
        latest.add(one)
        return target
    if isinstance(target, type) and issubclass(target, View):
        raise UsageError(
            f"{target.__qualname__} is a class of views: say decorators = [limits.limit(...)] in it"
        )
    if not callable(target):
        raise UsageError(f"cannot limit {target!r}; expected a view or a blueprint")
    view = decorated_in(target, LimitedView)
    if view is None:
        view = LimitedView(target, (one,), count_below(target), known.counter(target))
    else:
        view = LimitedView(view.function, added(view.limits, one), view.first, view.counter)
    for function in chain(target):
        known.add(function)
    return _wrapped(view, target)


def _wrapped(view: LimitedView, target: F) -> F:
    function = view.function

    @functools.wraps(cast("Callable[..., Any]", target))
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not has_request_context():  # a command, a test, a job
            return function(*args, **kwargs)
        app, native = _app(), _request()
        counter = view.counter_of(app, native.endpoint, wrapper)
        _check(view, _state_of(app).limiter, native, counter, view.title)
        return app.ensure_sync(function)(*args, **kwargs)

    if not hasattr(target, "__name__"):  # partials have none, and Flask looks for one
        wrapper.__name__ = _title_of(target)
    mark(wrapper, view)
    return cast("F", wrapper)


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
        has_limit = has_limit or decorated_in(one, LimitedView) is not None
    return False
