"""A service that is none: it has the files of the dashboard, and says what a test wants it to."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

_NOTHING = dict.fromkeys(("allowed", "denied", "shadow_allowed", "shadow_denied"), 0.0)
STORE: dict[str, Any] = {
    "url": "memory://",
    "state": "ok",
    "trouble": [],
    "reason": None,
    "open_for": None,
    "errors": {},
    "calls": 5,
    "fail_mode": 0,
}
POLICY = {
    "revision": 1,
    "rules": 1,
    "current": True,
    "stale": False,
    "trouble": None,
    "problems": 0,
    "failures": 0,
}
RULE = {
    "rule_id": "r",
    "mode": "enforce",
    "candidate_of": None,
    "allowed": 100,
    "denied": 3,
    "shadow_allowed": 0,
    "shadow_denied": 0,
    "per_second": _NOTHING,
    "sources": {"store": 103},
    "sources_per_second": {},
}


def live(**more: Any) -> dict[str, Any]:
    """What `/admin/v1/live` says; *more* of it otherwise."""
    now = int(time.time())
    series = {"allowed": [3] * 120, "denied": [0] * 119 + [5], "shadow_denied": [0] * 120}
    lists = ("busiest_keys", "refused_keys", "hot_keys", "bounds", "queues", "candidates")
    return {
        "at": time.time(),
        "began": now - 100.0,
        "version": "0.1.0",
        "workers": 2,
        "node": "a:1",
        "nodes": [],
        "policy": POLICY,
        "store": STORE,
        "factor": 1.0,
        "requests": {"allowed": 100, "denied": 3},
        "latency": {"p50": 0.000012, "p90": 0.0015, "p99": 1.5, "count": 103},
        "rules": [RULE],
        "series": {"end": now, "step": 1, "requests": series, "rules": {"r": series}},
        **{name: [] for name in lists},
        **more,
    }


def traffic(points: int = 300, **more: Any) -> dict[str, Any]:
    """What `/admin/v1/traffic` says of a node that has run for the whole range."""
    nothing = [0] * points
    return {
        "range": "5m",
        "end": int(time.time()),
        "step": 1,
        "seconds": [1] * points,
        "outage": [],
        "requests": {"allowed": [3] * points, "denied": nothing, "shadow_denied": nothing},
        "latency": dict.fromkeys(("p50", "p90", "p99"), [0.001] * points),
        "rule": None,
        "busiest_keys": [],
        "refused_keys": [],
        **more,
    }


def rules(rule_id: str, rule: dict[str, Any]) -> dict[str, Any]:
    """What `/admin/v1/rules` says of a policy of one rule."""
    return {"next_offset": None, "rules": [{"rule_id": rule_id, "version": 1, "rule": rule}]}


def history(**change: Any) -> dict[str, Any]:
    """What `/admin/v1/history` says of one revision."""
    first = {"revision": 1, "author": "ada", "time": "2026-11-16T12:00:00Z", "what": "begin"}
    return {"revisions": [first | change], "next_before": None}


class QuietServer(ThreadingHTTPServer):
    """A server that prints nothing when a browser hangs up before its answer."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


class FakeService:
    """Serves the files of the dashboard and the replies that a test sets: `live`, `rules`, ...

    The reply of a path is sent as JSON with status 200, or with that of `statuses`. Without a reply
    the connection is closed. All paths are below *prefix*. A test that changes several replies
    together holds the `lock`.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.statuses: dict[str, int] = {}
        self.replies: dict[str, Any] = {
            "/readyz": {"status": "ready"},
            "/admin/v1/live": live(),
            "/admin/v1/traffic": traffic(),
            "/admin/v1/rules": rules("r", {"key_by": "ip", "limit": "5/minute"}),
            "/admin/v1/status": {"revision": 1, "place": "here", "loaded_at": None},
            "/admin/v1/history": history(),
        }
        self.asked: list[str] = []
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{prefix}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        self.asked.append(path)
        path = path.removeprefix(self.prefix) if path.startswith(self.prefix) else "/elsewhere"
        with self.lock:
            body, kind = self._body(path)
            status = self.statuses.get(path, 200)
        if body is None:
            handler.close_connection = True
            return
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _body(self, path: str) -> tuple[bytes | None, str]:
        place = files("headgate.service.dashboard")
        if path == "/" or path.startswith("/dashboard/"):
            name = "page.html" if path == "/" else path.rpartition("/")[2]
            kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
            return place.joinpath(name).read_bytes(), kinds.get(
                name.rpartition(".")[2], "image/svg+xml"
            )
        found = self.replies.get(path)
        return None if found is None else json.dumps(found).encode(), "application/json"

    def __enter__(self) -> FakeService:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
