"""The OpenAPI document of the HTTP API: data, held against the implementation by a test."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.service.http.openapi.paths import PATHS, RLS_JSON
from headgate.service.http.openapi.schemas import HEADERS, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENAPI: Final = "3.1.0"


def openapi_document(
    paths: Mapping[str, object] = MappingProxyType({}),
    *,
    schemes: Mapping[str, object] = MappingProxyType({}),
    has_rls: bool = False,
) -> dict[str, Any]:
    """The document, with the *paths* of other parts of the service added, and the security
    *schemes* that they name.

    *has_rls*: whether there is `POST /json`.
    """
    secured = {"securitySchemes": dict(schemes)} if schemes else {}
    own = {**PATHS, **RLS_JSON} if has_rls else PATHS
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Headgate",
            "description": "Rate limit decisions: may this request go on?",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {**own, **paths},
        "components": {"schemas": SCHEMAS, "headers": HEADERS, **secured},
    }
