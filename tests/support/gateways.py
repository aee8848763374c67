"""The decision service on uvicorn, and real gateways before it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from headgate.config import Address
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.http import HttpApp
from headgate.service.http_server import Bounds, HttpServer
from headgate.service.sockets import listen
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.envoy import address
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = """
version: 1
rules:
  - {id: login, match: {endpoint: /login, method: POST}, key_by: ip, limit: 2/hour}
  - {id: per-key, match: {endpoint: "/api/**"}, key_by: api_key, limit: 2/hour}
  - {id: shop, match: {host: shop.example, endpoint: "/items"}, key_by: host, limit: 1/hour}
  - {id: strict, match: {endpoint: /strict}, key_by: ip, limit: 9/m, on_store_failure: fail_closed}
"""

NGINX_HEAD = """\
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
"""
"""How a configuration begins that needs no rights; the block of `http` is still open."""

NGINX = (
    NGINX_HEAD
    + """\
  server {{
    listen 127.0.0.1:{app};
    location / {{ return 200 "the app"; }}
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      auth_request /_headgate;
      auth_request_set $retry_after $upstream_http_retry_after;
      auth_request_set $ratelimit $upstream_http_ratelimit;
      auth_request_set $ratelimit_policy $upstream_http_ratelimit_policy;
      add_header RateLimit $ratelimit;
      add_header RateLimit-Policy $ratelimit_policy;
      error_page 403 = @limited;
      proxy_pass http://127.0.0.1:{app};
    }}
    location = /_headgate {{
      internal;
      proxy_pass {service}/v1/authorize?deny=403;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Original-URI $request_uri;
      proxy_set_header X-Original-Method $request_method;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Uri "";
      proxy_set_header X-Forwarded-Method "";
    }}
    location @limited {{
      default_type application/json;
      add_header Retry-After $retry_after always;
      add_header RateLimit $ratelimit always;
      add_header RateLimit-Policy $ratelimit_policy always;
      return 429 '{{"error": "rate_limit_exceeded"}}';
    }}
  }}
}}
"""
)

CADDY = """
{{
  admin off
  auto_https off
  storage file_system {directory}
}}
http://:{port} {{
  bind 127.0.0.1
  forward_auth {service} {{
    uri /v1/authorize?deny=429
  }}
  respond "the app"
}}
"""


def service_app(policy: str = POLICY) -> HttpApp:
    engine = AsyncRuleEngine(read_policy(policy), salt=b"salt")
    core = Core(rules=engine, clock=time.time_ns, secret=b"a secret of the service")
    return HttpApp(core)


@contextmanager
def service(policy: str = POLICY, *, socket: Path | None = None, receive: float = 60.0) -> Any:
    """The URL of a service under *policy*; it listens on a port, or on *socket*.

    A request has *receive* seconds to arrive.
    """
    at = Address("127.0.0.1", 0) if socket is None else Address(path=str(socket))
    listener = listen(at, mode=0o660)
    bounds = Bounds(header=65_536, connections=1_000, receive=receive, idle=60.0)
    loop = asyncio.new_event_loop()
    is_over = asyncio.Event()

    async def serve() -> None:
        server = HttpServer(service_app(policy), bounds=bounds)
        await server.start([listener.sock])
        await is_over.wait()
        await server.drain(linger=0.0, grace=0.0)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.at.port}" if socket is None else "http://headgate"
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


@contextmanager
def gateway(name: str, config: str, *call: str, at: str) -> Iterator[str]:
    """The URL of the gateway *name*, run as *call* with *config*, before the service *at*."""
    port, app = free_port(), free_port()
    directory = Path(tempfile.mkdtemp(prefix=f"headgate-{name}-"))
    written = directory / name
    written.write_text(config.format(directory=directory, port=port, app=app, service=at))
    filled = [part.format(config=written, directory=directory) for part in call]
    process = Process(filled, directory / "log")
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _is_there(url), f"{name} answers")
        yield url
    finally:
        process.terminate()
        release_port(port)
        release_port(app)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def nginx(at: str, *, answer: str = "the app") -> Iterator[str]:
    config = NGINX.replace("the app", answer)
    with gateway("nginx", config, "nginx", "-c", "{config}", "-p", "{directory}", at=at) as url:
        yield url


@contextmanager
def caddy(at: str) -> Iterator[str]:
    call = ("env", "HOME={directory}", "caddy", "run", "--adapter", "caddyfile")
    with gateway("caddy", CADDY, *call, "--config", "{config}", at=at) as url:
        yield url


def envoy_config(port: int, service_port: int) -> dict[str, Any]:
    """A bootstrap of an Envoy that asks the service about every request, and answers itself."""
    told = ["retry-after", "content-type", "ratelimit", "ratelimit-policy", "x-ratelimit-remaining"]
    shown = {"patterns": [{"exact": name} for name in told]}
    ext_authz = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        "transport_api_version": "V3",
        "allowed_headers": {"patterns": [{"safe_regex": {"regex": ".*"}}]},
        "http_service": {
            "server_uri": {"uri": "http://headgate", "cluster": "headgate", "timeout": "1s"},
            "path_prefix": "/v1/authorize",
            "authorization_response": {
                "allowed_client_headers": shown,
                "allowed_client_headers_on_success": shown,
            },
        },
    }
    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "use_remote_address": True,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "direct_response": {
                                "status": 200,
                                "body": {"inline_string": "the app"},
                            },
                        }
                    ],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.ext_authz", "typed_config": ext_authz},
            {"name": "envoy.filters.http.router", "typed_config": {"@type": router}},
        ],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    endpoint = {"endpoint": {"address": address(service_port)}}
    cluster = {
        "name": "headgate",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "headgate",
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
    listener = {"address": address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _is_there(url: str) -> bool:
    try:
        return httpx.get(f"{url}/started").status_code == 200
    except httpx.TransportError:
        return False
