"""A Django project in one file, with limits.

    python examples/django_app.py                                   # http://127.0.0.1:8000/
    gunicorn --chdir examples django_app:application                # WSGI
    uvicorn --app-dir examples django_app:asgi                      # ASGI

HEADGATE_STORE=redis://localhost:6379/0 makes all processes count together. Try

    curl -i localhost:8000/            # 10 a minute for each address
    curl -i localhost:8000/login -d password=wrong      # 3 wrong ones a minute
    curl localhost:8000/rate_limit     # what is left
"""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from wsgiref.simple_server import make_server

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY") or secrets.token_hex(),
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["headgate.integrations.django.RateLimitMiddleware"],
    HEADGATE={
        "limits": "10/minute",
        "exempt": ["/health"],
        "store": os.environ.get("HEADGATE_STORE", "memory://"),
    },
)

from headgate.integrations import CompletedResponse  # noqa: E402 (Django is configured in this file)
from headgate.integrations.django import limit, report, status  # noqa: E402


def index(_request: HttpRequest) -> HttpResponse:
    """Limited like the whole project."""
    return HttpResponse("Hello\n")


def health(_request: HttpRequest) -> HttpResponse:
    """Not limited: its path is exempt."""
    return HttpResponse("fine\n")


def failed(responded: CompletedResponse) -> bool:
    """Which attempts to log in count."""
    return responded.status_code == 401


@limit("3/minute strict", name="logins", charge_when=failed)
def login(request: HttpRequest) -> HttpResponse:
    """Wrong passwords are limited, right ones are not."""
    if request.POST.get("password") != "open sesame":
        return JsonResponse({"error": "wrong password"}, status=401)
    return JsonResponse({"welcome": True})


@limit("1000/hour", name="words", cost=100, is_estimate=True)
async def story(request: HttpRequest) -> StreamingHttpResponse:
    """A stream whose cost is known when it ends: 100 words are held, those sent are charged."""

    async def words() -> AsyncIterator[str]:
        sent = 0
        try:
            for word in ("Open", "the", "gate", "and", "let", "the", "water", "in.\n"):
                sent += 1
                yield f"{word} "
                await asyncio.sleep(0)
        finally:
            report(request, words=sent)

    return StreamingHttpResponse(words(), content_type="text/plain")


urlpatterns = [
    path("", index),
    path("health", health),
    path("login", login),
    path("story", story),
    path("rate_limit", status),
]

application = get_wsgi_application()
asgi = get_asgi_application()


def main() -> None:
    """Serve with the server of the standard library."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    with make_server("127.0.0.1", port, application) as server:
        print(f"http://127.0.0.1:{port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
