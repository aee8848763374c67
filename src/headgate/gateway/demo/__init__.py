"""The demo of `headgate up` without arguments: rules, an upstream, and an introduction."""

from __future__ import annotations

from importlib.resources import files
from typing import Final
from urllib.parse import quote

from headgate.gateway.demo.upstream import DemoUpstream

__all__ = ["DemoUpstream", "dashboard_link", "demo_rules", "introduction"]


_TEXT: Final = """\
headgate is up: Envoy, the decision service, and a small app behind them.

  gateway      {gateway}
  dashboard    {dashboard}   (also the API of the decision service)
  admin token  {token}   ({origin})
  rules        {rules}   ({lifetime})

Three commands to try in another terminal:

1. An allowed request. Its headers show the rest of five requests a minute:

     {allowed}

2. Seven login attempts. Five reach the app, which responds 401 (wrong password); the others get
   429 with the time to retry:

     {denied}

3. Change the rule while the gateway runs: a hundred attempts a minute. Then repeat command 2:

     {changed}

You can also edit the rules file; a change applies when you save it.

For your own service: headgate up --rules my.yaml --upstream http://localhost:9000
(in a clone: make run UP='--rules my.yaml --upstream http://localhost:9000').
Press Ctrl-C to stop. The log follows.
"""

_JSON: Final = "-H 'content-type: application/json'"
_RULE: Final = (
    '{"match": {"endpoint": "/login", "method": "POST"}, "key_by": "ip", "limit": "100/minute"}'
)


def lines_to_try(*, gateway: str, service: str, token: str) -> tuple[str, str, str]:
    """Three commands: an allowed request, denied requests, and a change of the rule."""
    to_rule = f"{service}/admin/v1/rules/login"
    return (
        f"curl -i -H 'x-api-key: ada' {gateway}/api/hello",
        f"curl -s -X POST '{gateway}/login?attempt=[1-7]' -w ' -> %{{http_code}}\\n'",
        f"curl -X PUT -H 'Authorization: Bearer {token}' {_JSON} -d '{_RULE}' {to_rule} -w '\\n'",
    )


def dashboard_link(service: str, token: str | None) -> str:
    """The URL of the dashboard, which signs in with *token* if there is one.

    Browsers do not send the part after `#`, and the page removes it from the address bar. The
    unix socket of a *service* without an HTTP port is returned as it is.
    """
    if not service.startswith("http"):
        return service
    return f"{service}/#token={quote(token, safe='')}" if token else f"{service}/"


def introduction(
    *, gateway: str, service: str, token: str | None, rules: str, is_temporary: bool
) -> str:
    """The introduction for a terminal. *token* is None if it was not generated for this run."""
    shown = token or "TOKEN"
    allowed, denied, changed = lines_to_try(gateway=gateway, service=service, token=shown)
    return _TEXT.format(
        gateway=gateway,
        dashboard=dashboard_link(service, token),
        token=shown,
        origin="generated for this run" if token else "the one that you set",
        rules=rules,
        lifetime="temporary: removed at the end" if is_temporary else "kept in --run-dir",
        allowed=allowed,
        denied=denied,
        changed=changed,
    )


def demo_rules() -> bytes:
    """The rules of the demo as YAML."""
    return files(__name__).joinpath("rules.yaml").read_bytes()
