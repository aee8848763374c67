"""What `headgate up` shows if it is given nothing: rules, an upstream, and what to try."""

from __future__ import annotations

from importlib.resources import files
from typing import Final
from urllib.parse import quote

from headgate.gateway.demo.upstream import DemoUpstream

__all__ = ["DemoUpstream", "dashboard_link", "demo_rules", "introduction"]


# What the demo says of itself: where things are, and three lines to try.


_TEXT: Final = """\
headgate is up: Envoy at the door, the decision service behind it, and a small app to protect.

  gateway      {gateway}
  dashboard    {dashboard}   (and the API of the decision service)
  admin token  {token}   ({whence})
  rules        {rules}

Three lines to try, in another terminal:

1. A request that is allowed. Its headers say what is left of five a minute:

     {allowed}

2. Seven attempts to log in. Five reach the app, which answers 401 (a wrong password); the others
   get 429, and are told when to come back:

     {denied}

3. The rules changed while it runs: a hundred attempts a minute. Try line 2 again:

     {changed}

You can as well edit {rules}
and save it: the change is in force a moment later.

This was the demo. For your own service: headgate up --rules my.yaml --upstream http://localhost:9000
(in a clone: make run UP='--rules my.yaml --upstream http://localhost:9000').
Ctrl-C ends it. From here on only what happens is told.
"""

_JSON: Final = "-H 'content-type: application/json'"
_RULE: Final = (
    '{"match": {"endpoint": "/login", "method": "POST"}, "key_by": "ip", "limit": "100/minute"}'
)


def lines_to_try(*, gateway: str, service: str, token: str) -> tuple[str, str, str]:
    """Three commands: one request that is allowed, some that are denied, and a changed rule."""
    to_rule = f"{service}/admin/v1/rules/login"
    return (
        f"curl -i -H 'x-api-key: ada' {gateway}/api/hello",
        f"curl -s -X POST '{gateway}/login?attempt=[1-7]' -w ' -> %{{http_code}}\\n'",
        f"curl -X PUT -H 'Authorization: Bearer {token}' {_JSON} -d '{_RULE}' {to_rule} -w '\\n'",
    )


def dashboard_link(service: str, token: str | None) -> str:
    """Where the dashboard is, open at a click to who has *token*.

    What stands behind the `#` is not sent to anybody, and the page takes it out of the address. A
    *service* that no browser can ask, at a unix socket, is told as it is.
    """
    if not service.startswith("http"):
        return service
    return f"{service}/#token={quote(token, safe='')}" if token else f"{service}/"


def introduction(*, gateway: str, service: str, token: str | None, rules: str) -> str:
    """All of it, for a terminal. *token* is None if it was not made here: then nobody is told."""
    shown = token or "TOKEN"
    allowed, denied, changed = lines_to_try(gateway=gateway, service=service, token=shown)
    return _TEXT.format(
        gateway=gateway,
        dashboard=dashboard_link(service, token),
        token=shown,
        whence="made for this run" if token else "the one that you have set",
        rules=rules,
        allowed=allowed,
        denied=denied,
        changed=changed,
    )


def demo_rules() -> bytes:
    """The rules of the demo, with their comments."""
    return files(__name__).joinpath("rules.yaml").read_bytes()
