"""The documents as one, for Envoy to validate."""

from headgate.gateway.envoy.values import Documents
from headgate.gateway.processes.envoy import static_config


def test_what_would_be_discovered_stands_in_its_place() -> None:
    chain = [{"name": "exact", "config_discovery": {"config_source": {}}}, {"name": "router"}]
    listener = {"@type": "x/Listener", "name": "gateway", "filter_chains": [{"filters": chain}]}
    config = {"@type": "x/RateLimit", "domain": "headgate"}
    made = Documents(
        bootstrap={
            "admin": {},
            "dynamic_resources": {"lds_config": {}},
            "static_resources": {"clusters": [{"name": "upstream"}]},
        },
        discovered={
            "filter-exact.json": {"resources": [{"name": "exact", "typed_config": config}]},
            "listeners.json": {"resources": [listener]},
        },
    )
    filters = [{"name": "exact", "typed_config": config}, {"name": "router"}]
    assert static_config(made) == {
        "admin": {},
        "static_resources": {
            "clusters": [{"name": "upstream"}],
            "listeners": [{"name": "gateway", "filter_chains": [{"filters": filters}]}],
        },
    }
