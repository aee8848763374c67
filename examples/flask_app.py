"""A Flask app with limits: for all of it, for logins that fail, and for tokens that are streamed.

python examples/flask_app.py               # then: curl -i http://127.0.0.1:8000/
gunicorn --chdir examples flask_app:app    # with HEADGATE_STORE=redis://... for several workers
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flask import Flask, Response, request, stream_with_context

from headgate.integrations.flask import RateLimits, report

if TYPE_CHECKING:
    from collections.abc import Iterator

app = Flask(__name__)
limits = RateLimits(
    app,
    limits="100/minute",
    exempt=["/health"],
    store=os.environ.get("HEADGATE_STORE", "memory://"),
)
app.add_url_rule("/rate_limit", view_func=limits.status)


@app.get("/")
def index() -> str:
    """Counted with everything else."""
    return "hello\n"


@app.get("/health")
def health() -> str:
    """Not counted."""
    return "well\n"


@app.post("/login")
@limits.limit("5/minute", charge_when=lambda response: response.status_code == 401)
def login() -> tuple[str, int]:
    """Five wrong passwords a minute; right ones are free."""
    if request.form.get("password") != "open sesame":
        return "no\n", 401
    return "welcome\n", 200


@app.get("/words/<int:count>")
@limits.limit(
    "1000/hour", cost=200, is_estimate=True, name="words", key=lambda asked: asked.args.get("user")
)
def words(count: int) -> Response:
    """A stream that costs as many words as are sent: 200 are set aside until that is known."""

    def sent() -> Iterator[str]:
        for number in range(1, count + 1):
            report(request, words=number)
            yield f"word {number}\n"

    return Response(stream_with_context(sent()), mimetype="text/plain")


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "8000")))
