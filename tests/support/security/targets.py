"""The apps on real servers, by themselves and behind gateways."""

from __future__ import annotations

import re
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

_PATIENCE: Final = "60"
"""Seconds that a gateway waits for a decision: what it allows without one is no spelling's doing,
and a machine that other work keeps busy takes its time."""

PRINTED: Final = ("nginx", "caddy", "envoy")
"""Gateways that ask the decision service, on the configurations that `headgate` prints."""

GATEWAYS: Final = (*PRINTED, "exact", "quota", "local")
"""Those, and the ways in which Headgate's own gateway decides."""

_BY_QUOTA: Final = ("address", "framing", "key", "method", "pair", "path", "plan", "shop", "user")
"""The groups whose rules Envoy can decide by quota; it asks the service about the others. In its
first moments it allows a caller the limit by itself, and a share comes on top."""


def _with_proxies(text: str) -> str:
    """The printed text with the trusted proxies of the rules, which Caddy has to be told too."""
    block = re.compile(r"(reverse_proxy [^\n{]*\{\n)")
    return block.sub(r"\1trusted_proxies 127.0.0.9\n", text)


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
        if name in PRINTED:
            serving = decision_service.serving(directory, rules=POLICY, grpc=name == "envoy")
            service = closing.enter_context(serving)
            options = [
                *gateway_templates.at(service, name),
                *("--rules", str(directory / "rules.yaml")),
                *("--timeout", _PATIENCE, "--on-failure", "closed"),
            ]
            made_for = partial(gateway_templates.gateway, name, directory / name, *options)
            url = closing.enter_context(made_for(upstream=upstream, edited=_with_proxies))
            yield Target(name, int(url.rpartition(":")[2]), journal)
            return
        flags = ("--decide", name, "--decision-timeout", _PATIENCE)
        made = closing.enter_context(
            gateway_process.gateway(directory, *flags, rules=POLICY, upstream=upstream)
        )
        bounds = dict.fromkeys(_BY_QUOTA, 2 * LIMIT) if name == "quota" else {}
        yield Target(name, made.port, journal, bounds)
