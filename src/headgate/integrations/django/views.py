"""A view of the limits of a caller: all of the project, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from headgate.integrations.django.request import DjangoRequest
from headgate.integrations.django.settings import current_limiter
from headgate.integrations.exemptions import mark_exempt
from headgate.integrations.rate_limit_status import status_body
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from django.http import HttpRequest


@require_safe
def status(request: HttpRequest) -> HttpResponse:
    """The limits of the caller as JSON. It consumes none of them."""
    page = status_body(current_limiter(), DjangoRequest(request))
    # Under ASGI it runs in a thread, and the store is that of the event loop.
    body = async_to_sync(adrive)(page) if hasattr(request, "scope") else drive(page)
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(body, content_type="application/json", headers=headers)


mark_exempt(status)
