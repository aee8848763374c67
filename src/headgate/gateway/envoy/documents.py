"""Envoy's whole configuration, built from the policy and the settings without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.client_address import client_address
from headgate.gateway.envoy.clusters import (
    LISTENERS,
    bootstrap,
    discovered,
    filter_documents,
    inline_filters,
    placed_filters,
    secret_documents,
)
from headgate.gateway.envoy.filters import decided, http_filters, ignored_parts
from headgate.gateway.envoy.listener import listener
from headgate.gateway.envoy.llm import model_paths, model_route, reads_bodies
from headgate.gateway.envoy.values import Documents, Edge, single_lines, typed
from headgate.llm.protocol import RATE_LIMIT_HEADERS
from headgate.responses import headers, ratelimit_draft11

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.envoy.values import Decided, Json, Places
    from headgate.policy.model import Policy

_LISTENER: Final = "envoy.config.listener.v3.Listener"
_RATE_LIMIT_HEADERS: Final = (*headers.NAMES, ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT)


def documents(policy: Policy, settings: GatewaySettings, places: Places) -> Documents:
    """Build the files with which Envoy enforces *policy* under *settings*.

    The listeners come last: the files that they name must exist before them.
    """
    decisions = decided(policy, settings)
    edge = Edge(
        settings,
        places,
        address=client_address(policy, settings),
        filters=http_filters(policy, settings),
        own_headers=_own_headers(policy, decisions),
        model_route=model_route(settings.client_max_model_body, policy),
        model_paths=model_paths(policy),
        lines=single_lines(policy),
    )
    boot = bootstrap(settings, places)
    placed = listener(edge, placed_filters(edge.filters, places))
    return Documents(
        bootstrap=boot,
        discovered={
            **filter_documents(edge.filters),
            **secret_documents(settings),
            LISTENERS: discovered([typed(_LISTENER, **placed)]),
        },
        whole=_static(boot, listener(edge, inline_filters(edge.filters))),
        decided=decisions,
        warnings=(*edge.address.warnings, *ignored_parts(policy)),
    )


def _static(boot: Json, made: Json) -> Json:
    """*boot* with the listener *made* instead of discovered ones."""
    resources = {**boot["static_resources"], "listeners": [made]}
    static = {name: value for name, value in boot.items() if name != "dynamic_resources"}
    return {**static, "static_resources": resources}


def _own_headers(policy: Policy, decisions: Iterable[Decided]) -> tuple[str, ...]:
    """The headers that the service adds to responses, if some rule has them."""
    exact = {one.rule for one in decisions if one.decide == "exact"}
    if not any(rule.id in exact and rule.headers == "on" for rule in policy.rules):
        return ()
    has_models = any(map(reads_bodies, policy.rules))
    return (*_RATE_LIMIT_HEADERS, *RATE_LIMIT_HEADERS) if has_models else _RATE_LIMIT_HEADERS
