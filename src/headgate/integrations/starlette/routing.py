"""The route of a request in a Starlette or FastAPI app, found from anywhere.

A middleware runs before the app has looked for the route. Later, the scope has only the last part
of the way: the route as it is in its router, and the path of the mount as the client spelled it. So
the routes are walked again from the outermost router, to the whole template:
`/api/{version}/users/{id}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.routing import BaseRoute, Host, Match, Mount

from headgate.integrations.asgi.request import Resolved
from headgate.integrations.exemptions import is_exempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.integrations.asgi.request import Scope

_REST: Final = "/{path}"
"""What the template of a mount ends with: the part that its app is to look at."""

_MOST_MIDDLEWARES: Final = 100
"""The middlewares that are looked through at most: one may hold itself."""


class _Found(NamedTuple):
    """Where a walk has ended. *route*: None at a mount that cannot be looked into further."""

    template: str
    endpoint: object
    route: object | None


def resolve(scope: Scope, app: object = None) -> Resolved | None:
    """The route that the request of *scope* is for; None if there is none.

    A method that the route does not serve finds it all the same. *app* is what the scope will be
    given to, if it is known: a middleware does, and where the outermost router cannot look
    into what is mounted, the walk goes on there; mounts in between are not in the template. Else
    the template goes as far as the mount. The scope is not changed.
    """
    found = _walk(scope, app)
    if found is None:
        return None
    return Resolved(found.template or "/", _marked_method(found.endpoint, scope))


def _walk(scope: Scope, app: object = None) -> _Found | None:
    if scope["type"] not in ("http", "websocket"):
        return None
    # FastAPI keeps its current route in the scope, which is not that of this walk.
    here = {**scope, "path_params": {}, "fastapi": {}}
    inner = _routes_behind(app)
    outer = _routes_of(scope.get("router") or scope.get("app"))
    found = None
    if outer is not None:
        root_path = scope.get("app_root_path", scope.get("root_path", ""))
        found = _find(outer, {**here, "root_path": root_path}, "")
    if inner is None or inner is outer or (found is not None and found.route is not None):
        return found
    return _find(inner, here, "" if found is None else found.template) or found


def _routes_of(app: object) -> Sequence[Any] | None:
    """The routes of *app*, if it has any and they are Starlette's; a route may be an app too."""
    if isinstance(app, BaseRoute):
        return [app]
    routes = getattr(app, "routes", None)
    if not isinstance(routes, list | tuple) or not all(hasattr(one, "matches") for one in routes):
        return None
    return routes


def _routes_behind(app: object) -> Sequence[Any] | None:
    """The routes of *app*, or of the app that it is a middleware of.

    Not those of `scope["app"]`: that may be several mounts further out, and a path below a mount
    would be taken for one of its own.
    """
    for _ in range(_MOST_MIDDLEWARES):
        routes = _routes_of(app)
        if routes is not None or app is None:
            return routes
        app = getattr(app, "app", None)
    return None


def _find(routes: Iterable[Any], scope: Scope, before: str) -> _Found | None:
    """The route among *routes* that a router would take; *before*: the templates on the way."""
    partial = None
    for route in _flat(routes):
        match, more = route.matches(scope)
        if match is Match.FULL:
            return _found(route, {**scope, **more}, before)
        if match is Match.PARTIAL and partial is None:
            partial = route, more
    if partial is None:
        return None
    route, more = partial
    return _found(route, {**scope, **more}, before)


def _found(route: Any, scope: Scope, before: str) -> _Found:
    own = getattr(route, "path_format", None) or ""
    endpoint = scope.get("endpoint")
    if not isinstance(route, Mount | Host):
        return _Found(before + own, endpoint, route)
    template = before + own.removesuffix(_REST)
    return _find(route.routes, scope, template) or _Found(template, endpoint, None)


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """*routes*, with those of FastAPI's included routers in their place, with their prefixes."""
    for route in routes:
        listed = getattr(route, "effective_route_contexts", None)
        if listed is None:
            yield route
        else:
            for context in listed():
                yield context.starlette_route or context


def _marked_method(endpoint: object, scope: Scope) -> object:
    """*endpoint*, or the method of it that will be called if that has a mark of its own."""
    if not isinstance(endpoint, type):
        return endpoint
    name = str(scope.get("method", "")).lower()
    method = getattr(endpoint, name, None)
    if method is None and name == "head":
        method = getattr(endpoint, "get", None)
    return method if is_exempt(method) else endpoint


def route_of(scope: Scope) -> object | None:
    """The route that alone says the place of a request; None if it was mounted, or is unknown."""
    if "app_root_path" in scope:
        return None
    state = scope.get("fastapi")
    included = None if state is None else state.get("effective_route_context")
    return included or scope.get("route")


class Place(NamedTuple):
    """The route that is being served: its template, and the methods that it is for."""

    template: str
    methods: str


def place_of(scope: Scope) -> Place | None:
    """The place of the request of *scope*; None if it is unknown.

    Never the path itself, nor the method of the request: a caller could have a new counter for
    every value in it.
    """
    route = _served(scope)
    own = str(getattr(route, "path_format", ""))
    if route is not None and "app_root_path" not in scope:
        return Place(own, _methods(route))  # nothing is mounted: the route knows all of it
    found = _walk(scope)
    if found is None:
        return None if route is None else Place(own, _methods(route))
    # An app that is mounted inside a middleware of its own cannot be looked into.
    is_whole = found.endpoint is scope.get("endpoint")
    template = found.template if is_whole else found.template + own
    return Place(template, _methods(route or found.route))


def _served(scope: Scope) -> Any:
    """The route that serves the request, as it is in its router; None if it is unknown.

    A route further out, which the mounted app is behind, is not it.
    """
    included = scope.get("fastapi", {}).get("effective_route_context")
    for route in (getattr(included, "starlette_route", None) or included, scope.get("route")):
        if route is not None and getattr(route, "endpoint", None) is scope.get("endpoint"):
            return route
    return None


def _methods(route: object) -> str:
    methods = set(getattr(route, "methods", None) or ())
    if "GET" in methods:
        methods.discard("HEAD")  # which Starlette adds, and FastAPI does not
    return ",".join(sorted(methods)) or "*"
