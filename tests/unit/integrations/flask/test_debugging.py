"""The debug header in a Flask app: of the app, and of its views."""

from __future__ import annotations

from headgate.responses.debug import debug_token
from headgate.units import SECOND
from tests.support.flask_apps import ask, made

OURS = b"a secret"


def test_the_limits_of_the_app_and_of_a_view_are_told() -> None:
    app, limits = made(limits="9/minute", debug_secret=OURS)
    app.add_url_rule("/", "index", limits.limit("1/minute", name="view")(lambda: "hello"))
    token, _ = debug_token(OURS, now_ns=100 * SECOND, ttl_s=60)
    first, refused = (ask(app, headers={"Headgate-Debug": token}) for _ in range(2))
    shown = first.headers["Headgate-Decision"]
    assert shown.startswith('"default";allowed=?1;mode=enforce;key="~')
    assert ', "view";allowed=?1;' in shown
    assert first.headers["Cache-Control"] == "no-store"
    assert refused.status_code == 429
    assert '"view";allowed=?0;' in refused.headers["Headgate-Decision"]
    for one in (first, refused):
        assert len(one.headers.getlist("Headgate-Decision")) == 1
        assert len(one.headers.getlist("Cache-Control")) == 1
        assert "203.0.113.7" not in one.headers["Headgate-Decision"]
    plain = ask(app, peer="203.0.113.8", headers={"Headgate-Debug": f"{token}0"})
    assert not {"Headgate-Decision", "Cache-Control"} & set(plain.headers.keys())


def test_an_answer_of_the_app_to_a_refusal_tells_it_too() -> None:
    app, _ = made(limits="1/minute", debug_secret=OURS)
    app.add_url_rule("/", "index", lambda: "hello")
    app.register_error_handler(429, lambda _error: ("slower", 429))
    token, _ = debug_token(OURS, now_ns=100 * SECOND, ttl_s=60)
    ask(app)
    refused = ask(app, headers={"Headgate-Debug": token})
    assert refused.text == "slower"
    assert '"default";allowed=?0;' in refused.headers["Headgate-Decision"]
