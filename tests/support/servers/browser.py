"""A real browser, Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.request import Request, urlopen

from websockets.sync.client import connect

from tests.support.servers.process import Process, ServerError
from tests.support.servers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from websockets.sync.client import ClientConnection

_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # containers have none to give; only the tests' own pages are opened
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_KEYS: Final[Mapping[str, tuple[int, str]]] = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
}


class Browser:
    """Chromium with a new profile, until it is closed; `page` opens pages in it."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="headgate-browser-"))
        profile = self._directory / "profile"
        log = self._directory / "log"
        self._process = Process(["chromium", *_FLAGS, f"--user-data-dir={profile}"], log)
        told = profile / "DevToolsActivePort"
        try:
            wait_until(lambda: self._is_there(told, log), "the browser listens", within=60.0)
        except BaseException:
            self.close()
            raise
        self._port = int(told.read_text("ascii").split()[0])

    def _is_there(self, told: Path, log: Path) -> bool:
        if not self._process.is_running:
            raise ServerError(f"the browser has ended: {log.read_text(errors='replace')}")
        return told.exists() and "\n" in told.read_text("ascii")

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A new page, with nothing in it yet; it is closed at the end."""
        place = f"http://127.0.0.1:{self._port}/json/new?about:blank"
        with urlopen(Request(place, method="PUT"), timeout=60) as reply:
            target = json.load(reply)
        where = target["webSocketDebuggerUrl"]
        with connect(where, max_size=None, max_queue=None, proxy=None) as socket:
            page = Page(socket)
            try:
                yield page
            finally:
                page.call("Page.close")

    def close(self) -> None:
        """End it, and forget its profile."""
        self._process.terminate()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Page:
    """One page. What it asked for and complained of is in `requests` and `complaints`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def hurry(self, times: int) -> None:
        """Have the timers of what is opened from now on run so many times as fast."""
        source = (
            "const asked = window.setTimeout;"
            f"window.setTimeout = (act, pause, ...more) => asked(act, pause / {times}, ...more);"
        )
        self.call("Page.addScriptToEvaluateOnNewDocument", source=source)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call *method* of the protocol."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            heard = json.loads(self._socket.recv(timeout=60))
            if heard.get("id") != self._number:
                self._note(heard)
            elif "error" in heard:
                raise ServerError(f"{method}: {heard['error']}")
            else:
                found: dict[str, Any] = heard["result"]
                return found

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["entry"]))

    def open(self, url: str) -> None:
        """Go to *url*, as a new document even if only its fragment differs."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'", "the page is loaded")

    def evaluate(self, expression: str) -> Any:
        """What *expression* is, as data; it may be a promise."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise ServerError(f"{expression}: {json.dumps(found['exceptionDetails'])}")
        return found["result"].get("value")

    def until(self, expression: str, what: str, *, within: float = 60.0) -> Any:
        """Wait until *expression* is true; what it is then."""
        asked = f"((found) => found instanceof Node || found)({expression})"
        end = time.monotonic() + within
        while True:
            trouble: ServerError | None = None
            try:
                if found := self.evaluate(asked):
                    return found
            except ServerError as error:  # the document may have gone meanwhile
                trouble = error
            if time.monotonic() > end:
                told = f"waited {within} s until {what}: {self.text()[:2_000]}"
                raise ServerError(told) from trouble
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        """What *selector* shows."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText"))

    def click(self, selector: str) -> None:
        """Click in the middle of *selector* with the mouse; again, if it has moved meanwhile."""
        end = time.monotonic() + 60.0
        while not self._clicked(selector):
            if time.monotonic() > end:
                raise ServerError(f"{selector} does not stay where it is")

    def _clicked(self, selector: str) -> bool:
        """Whether a click was one on *selector*."""
        found = self.until(
            f"""(() => {{
                const one = document.querySelector({json.dumps(selector)});
                if (!one || one.disabled) return null;
                one.scrollIntoView({{block: "center", behavior: "instant"}});
                const box = one.getBoundingClientRect();
                window.isClicked = false;
                one.addEventListener("click", () => {{ window.isClicked = true; }},
                                     {{once: true, capture: true}});
                return box.width ? [box.x + box.width / 2, box.y + box.height / 2] : null;
            }})()""",
            f"{selector} can be clicked",
        )
        for kind in ("mousePressed", "mouseReleased"):
            mouse = {"x": found[0], "y": found[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **mouse)
        return self.evaluate("window.isClicked") is not False  # another document knows nothing

    def write(self, selector: str, text: str) -> None:
        """Put *text* in place of what *selector* has."""
        self.evaluate(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " one.focus(); one.select?.(); })()"
        )
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, is_shifted: bool = False) -> None:
        """Press a key: `Tab`, `Enter`, `Escape` or a space."""
        code, text = _KEYS[key]
        about = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 if is_shifted else 0,
        }
        self.call(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def look(
        self, width: int, height: int, *, scheme: str = "light", motion: str = "reduce"
    ) -> None:
        """Be a window of that size, for somebody who wants it light or dark, with motion or not."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 500, **size)
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        asked = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=asked)

    def controls(self) -> Iterator[tuple[str, str]]:
        """The role and the name of everything that can be used, as a screen reader is told."""
        self.call("Accessibility.enable")  # only now: to keep that tree up to date is much work
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        self.call("Accessibility.disable")
        for node in nodes:
            is_focusable = any(
                one["name"] == "focusable" and one["value"].get("value")
                for one in node.get("properties", ())
            )
            role = node.get("role", {}).get("value")
            if is_focusable and not node.get("ignored") and role != "RootWebArea":
                yield role, node.get("name", {}).get("value", "")

    def screenshot(self, path: Path, *, is_whole: bool = False) -> None:
        """A picture of what is seen, or of the *whole* page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(found["data"]))
