"""What Envoy discovers from files: where it is told to look, and what stands there."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headgate.gateway.envoy.values import typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.gateway.envoy.values import HttpFilter, Json, Places

LISTENERS: Final = "listeners.json"
MOST_DISCOVERED: Final = 24
"""So many filters are discovered, each from a file of its own; more stand in the listener.

Envoy takes an instance of inotify for each file that it watches and ends itself when there is none,
and Linux gives a user 128 of them. In the listener a change of a filter replaces the listener:
connections that there are keep to the rules they began with, and are told to close."""


def from_file(path: str) -> Json:
    """A source of configuration that is the file at *path*, read again when it is replaced."""
    return {"resource_api_version": "V3", "path_config_source": {"path": path}}


def discovered(resources: list[Json]) -> Json:
    """The content of such a file. Its version is that of what is in it: the same for the same."""
    text = json.dumps(resources, sort_keys=True).encode()
    return {"version_info": sha256(text).hexdigest()[:16], "resources": resources}


def filter_documents(filters: Sequence[HttpFilter]) -> dict[str, Json]:
    """The files that *filters* are discovered from, by their names."""
    if len(filters) > MOST_DISCOVERED:
        return {}
    return dict(map(_filter_document, filters))


def placed_filters(filters: Sequence[HttpFilter], places: Places) -> list[Json]:
    """The places of *filters* in the chain. There is no default for one that is discovered: as
    long as Envoy does not have it the listener does not serve, or requests are refused."""
    if len(filters) > MOST_DISCOVERED:
        return [{"name": one.name, "typed_config": one.config} for one in filters]
    return [_discovering(one, places) for one in filters]


def _filter_document(one: HttpFilter) -> tuple[str, Json]:
    resource = typed(
        "envoy.config.core.v3.TypedExtensionConfig", name=one.name, typed_config=one.config
    )
    return _filter_file(one.name), discovered([resource])


def _discovering(one: HttpFilter, places: Places) -> Json:
    return {
        "name": one.name,
        "config_discovery": {
            "config_source": from_file(f"{places.directory}/{_filter_file(one.name)}"),
            "type_urls": [one.config["@type"]],
        },
    }


def _filter_file(name: str) -> str:
    return f"filter-{quote(name, safe='')}.json"
