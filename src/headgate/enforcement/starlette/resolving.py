"""Which route of a Starlette or FastAPI app a request is for, asked from anywhere.

A middleware runs before the app has looked for the route, and what runs later finds only the last
part of the way in the scope: the route as it is written in its router, and the path under which the
router is mounted as this client spelled it. So the routes are walked once more, from the outermost
router, and what is found is the whole template: `/api/{version}/users/{id}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Host, Match, Mount

from headgate.enforcement.asgi.routing import Resolved
from headgate.enforcement.marks import is_exempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.enforcement.asgi.incoming import Scope

_REST: Final = "/{path}"
"""What the template of a mount ends with: the part that its app is to look at."""


def resolve(scope: Scope) -> Resolved | None:
    """The route that the request of *scope* is for; None if there is none.

    A method that the route does not serve finds it all the same. Of a mounted app that has no
    routes to be looked at, the template goes as far as the mount. The scope is not changed.
    """
    outermost = scope.get("router") or scope.get("app")
    routes = getattr(outermost, "routes", None)
    if routes is None or scope["type"] not in ("http", "websocket"):
        return None
    root_path = scope.get("app_root_path", scope.get("root_path", ""))
    # FastAPI keeps notes on the route it is at in the scope: they are not for this walk.
    return _find(routes, {**scope, "root_path": root_path, "path_params": {}, "fastapi": {}}, "")


def _find(routes: Iterable[Any], scope: Scope, before: str) -> Resolved | None:
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


def _found(route: Any, scope: Scope, before: str) -> Resolved:
    own = getattr(route, "path_format", None) or ""
    endpoint = scope.get("endpoint")
    if not isinstance(route, Mount | Host):
        return Resolved(before + own, _marked_method(endpoint, scope))
    template = before + own.removesuffix(_REST)
    return _find(route.routes, scope, template) or Resolved(template or "/", endpoint)


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


def template_of(scope: Scope) -> str:
    """The template of the route that is being served, for what runs in a route of FastAPI.

    Never the path itself: whoever asks could have a new counter for every value in it.
    """
    included = scope.get("fastapi", {}).get("effective_route_context")
    own = str(getattr(included or scope.get("route"), "path_format", ""))
    if "app_root_path" not in scope:  # nothing is mounted: the route knows all of it
        return own
    found = resolve(scope)
    if found is None:
        return f"{scope.get('root_path', '')}{own}"
    # An app that is mounted inside a middleware of its own cannot be looked into.
    return found.template if found.endpoint is scope.get("endpoint") else found.template + own
