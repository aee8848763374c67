"""Flask apps of the contract."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from flask import Blueprint, Flask, Response, abort, request, stream_with_context

from headgate.integrations.flask import RateLimits, report
from headgate.testing.integration_contract import IntegrationContract, native_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headgate.testing.integration_contract import Answer, AppSpec, Route


class FlaskCall:
    """The request of Flask."""

    def header(self, name: str) -> str | None:
        return request.headers.get(name)

    def read(self, size: int) -> bytes:
        return request.stream.read(size)

    def report(self, amounts: Mapping[str, int]) -> None:
        report(request, amounts)

    def forbid(self) -> Answer:
        abort(403)


def headers_of(native: Any) -> Mapping[str, str]:
    return cast("Mapping[str, str]", native.headers)


class FlaskContract(IntegrationContract):
    """The extension, and `limit` on views."""

    interface = "wsgi"

    def build(self, spec: AppSpec) -> Any:
        app = Flask("contract")
        limits = RateLimits(app, **spec.options)
        for number, route in enumerate(spec.routes):
            view = self._view(spec, route, limits)
            path = re.sub(r"\{(\w+)\}", r"<\1>", route.path)
            options: dict[str, Any] = {"endpoint": f"view-{number}", "methods": ["GET", "POST"]}
            if route.mount:
                blueprint = Blueprint(f"mounted-{number}", __name__, url_prefix=route.mount)
                blueprint.add_url_rule(path, view_func=view, **options)
                app.register_blueprint(blueprint)
            else:
                app.add_url_rule(path, view_func=view, **options)
        return app

    def _view(self, spec: AppSpec, route: Route, limits: RateLimits) -> Callable[..., Any]:
        def view(**_: str) -> Response:
            answer = spec.script.play(route.behaviour, FlaskCall())
            body: Any = answer.body
            if not isinstance(body, bytes):
                body = stream_with_context(cast("Iterator[bytes]", body))
            return Response(body, answer.status, dict(answer.headers))

        found: Callable[..., Any] = view
        if route.limit is not None:
            found = limits.limit(**native_options(route.limit, headers_of))(found)
        return limits.exempt(found) if route.is_exempt else found
