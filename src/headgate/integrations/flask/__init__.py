"""Limits in a Flask app: for all of it, for some of its views and blueprints, for none of some.

limits = RateLimits(app, limits="100/minute", exempt=["/health"])

@app.post("/login")
@limits.limit("5/minute")
def login(): ...
"""

from __future__ import annotations

from headgate.errors import not_installed

try:
    import flask  # noqa: F401 (to say at once what is missing)
except ModuleNotFoundError as error:
    raise not_installed("flask", error) from error

from headgate.integrations.allowance import LimitOptions
from headgate.integrations.flask.extension import RateLimits
from headgate.integrations.wsgi import report

__all__ = ["LimitOptions", "RateLimits", "report"]
