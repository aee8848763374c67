"""The apps on real servers, by themselves and behind gateways."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.support import decision_service, gateway_process, gateway_templates
from tests.support.integrations.aiohttp import AiohttpServer
from tests.support.integrations.http_servers import GunicornServer, UvicornServer
from tests.support.security import apps
from tests.support.security.readings import LIMIT, POLICY, Journal
from tests.support.security.trial import Target
from tests.support.security.upstream import upstream_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.integrations.http_servers import HttpServer

_h11 = partial(UvicornServer, has_lifespan=False, http="h11")
_httptools = partial(UvicornServer, has_lifespan=False, http="httptools")
_gunicorn = partial(GunicornServer, threads=32)

INTEGRATIONS: Final[dict[str, tuple[Callable[..., Any], Callable[[Any], HttpServer]]]] = {
    "asgi": (apps.asgi_app, _h11),
    "starlette": (apps.starlette_app, _httptools),
    "fastapi": (apps.fastapi_app, _h11),
    "litestar": (apps.litestar_app, _httptools),
    "aiohttp": (apps.aiohttp_app, AiohttpServer),
    "wsgi": (apps.wsgi_app, _gunicorn),
    "flask": (apps.flask_app, _gunicorn),
    "django": (apps.django_app, _gunicorn),
    "drf": (apps.drf_app, _gunicorn),
}
"""The app of each integration, and its server."""

GATEWAYS: Final = ("nginx", "exact", "quota", "local")
"""nginx before the decision service, and the ways in which Headgate's own gateway decides."""

_BY_QUOTA: Final = ("address", "framing", "key", "method", "pair", "path", "plan", "shop", "user")
"""The groups whose rules Envoy can decide by quota; it asks the service about the others. In its
first moments it allows a caller the limit by itself, and a share comes on top."""


@contextmanager
def integration(name: str) -> Iterator[Target]:
    """The app of an integration on its server."""
    build, serve = INTEGRATIONS[name]
    journal = Journal()
    with ExitStack() as closing:
        server = serve(build(journal, closing))
        closing.callback(server.close)
        yield Target(name, server.port, journal)


@contextmanager
def gateway(name: str, directory: Path) -> Iterator[Target]:
    """An app behind one of the `GATEWAYS`."""
    journal = Journal()
    with ExitStack() as closing:
        server = _httptools(upstream_app(journal))
        closing.callback(server.close)
        upstream = f"http://127.0.0.1:{server.port}"
        if name == "nginx":
            service = closing.enter_context(decision_service.serving(directory, rules=POLICY))
            at = ("--service", service.url)
            url = closing.enter_context(
                gateway_templates.gateway("nginx", directory / "nginx", *at, upstream=upstream)
            )
            yield Target(name, int(url.rpartition(":")[2]), journal)
            return
        flags = ("--decide", name)
        made = closing.enter_context(
            gateway_process.gateway(directory, *flags, rules=POLICY, upstream=upstream)
        )
        bounds = dict.fromkeys(_BY_QUOTA, 2 * LIMIT) if name == "quota" else {}
        yield Target(name, made.port, journal, bounds)
