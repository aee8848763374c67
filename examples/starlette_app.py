"""A Starlette app with limits: for all of it, for an endpoint, for websockets.

pip install uvicorn
python examples/starlette_app.py
curl -i http://127.0.0.1:8000/search?q=water
"""

import os

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from headgate.integrations.starlette import RateLimitMiddleware, exempt, limit


@exempt
async def health(request: Request) -> PlainTextResponse:  # noqa: ARG001 (Starlette gives it)
    return PlainTextResponse("well")


@limit("5/minute", key=lambda request: request.headers.get("x-user"))
async def search(request: Request) -> JSONResponse:
    return JSONResponse({"found": f"nothing about {request.query_params.get('q')}"})


@limit("10/minute", cost=lambda request: int(request.path_params["pages"]))
def export(request: Request) -> PlainTextResponse:
    return PlainTextResponse("page\n" * int(request.path_params["pages"]))


@limit("2/minute")
async def live(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


app = Starlette(
    routes=[
        Route("/health", health),
        Route("/search", search),
        Mount("/export", routes=[Route("/{pages:int}", export)]),
        WebSocketRoute("/live", live),
    ],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            limits="100/minute",
            store=os.environ.get("HEADGATE_STORE", "memory://"),
        )
    ],
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
