"""A transcript of calls for a golden file: what programs rely on apart from what people read.

In the wire file a text for people is `<text>`, and the text file has it under the id of its call.
What differs from run to run is a placeholder there, after a look at its form.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from tests.golden.recorder import check_text, check_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

TEXT = "<text>"
PROSE = frozenset({"title", "detail", "message", "hint", "reason", "what", "why", "reasons"})
"""The names of JSON fields that are texts for people."""

SPREAD = {"retry-after": "[1-6]", "$.retry_after": "[1-6]", "$.retry_after_ms": "[1-9][0-9]{3}"}
"""How long to wait, where that is drawn at random."""


class Transcript:
    """The calls of one recording, `wire/<name>.json` and `text/<name>.txt`.

    *unstable* has the form of what is new in each run, by the name of a header or of a JSON field,
    or by its place as `$.a.b`.
    """

    def __init__(
        self,
        name: str,
        *,
        prose: frozenset[str] = PROSE,
        unstable: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._prose = prose
        self._unstable = unstable or {}
        self._calls: dict[str, object] = {}
        self._texts: list[str] = []

    def add(self, call: str, wire: object) -> None:
        """Record *wire*, any JSON, as what came of *call*."""
        assert call not in self._calls, f"two calls are named {call!r}"
        self._calls[call] = wire

    def add_text(self, call: str, place: str, text: str) -> None:
        """Record a text for people."""
        self._texts.append(f"[{call}] {place}: {text}")

    def add_response(self, call: str, response: httpx.Response, *, is_spread: bool = False) -> None:
        """Record a response over HTTP: its status, all its headers, and its body.

        *is_spread*: what it says about waiting is random.
        """
        if is_spread:
            once = Transcript(self._name, prose=self._prose, unstable={**self._unstable, **SPREAD})
            once.add_response(call, response)
            self._calls |= once._calls
            self._texts += [re.sub(r"\d+ seconds?", "<seconds>", text) for text in once._texts]
            return
        wire: dict[str, object] = {
            "status": response.status_code,
            "headers": self._headers(response),
        }
        if response.content and "json" in response.headers.get("content-type", ""):
            wire["json"] = self.data(call, response.json())
        elif response.content:
            wire["body"] = TEXT
            self.add_text(call, "body", response.text)
        self.add(call, wire)

    def data(self, call: str, value: Any, place: str = "$", name: str = "") -> Any:
        """*value* as it goes to the wire file; its texts go to the text file."""
        if isinstance(value, dict):
            return {
                key: self.data(call, value[key], f"{place}.{key}", key) for key in sorted(value)
            }
        if isinstance(value, list):
            return [
                self.data(call, one, f"{place}[{number}]", name) for number, one in enumerate(value)
            ]
        for known in (name, place):
            if known in self._unstable and value is not None:
                return self._placeholder(known, value)
        if name in self._prose and isinstance(value, str):
            self.add_text(call, place, value)
            return TEXT
        return value

    def check(self) -> None:
        """Compare all of it with the recording, or record it."""
        assert self._calls, "nothing was called"
        check_wire(self._name, self._calls)
        if self._texts:
            check_text(self._name, "\n".join(self._texts))

    def _headers(self, response: httpx.Response) -> list[str]:
        """The lines, sorted by name: their order means nothing."""
        lines = []
        for raw_name, raw_value in response.headers.raw:
            name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
            if name == "date":
                parsedate_to_datetime(value)
                value = "<date>"
            elif name == "content-length":
                is_empty = response.request.method == "HEAD"
                assert is_empty or int(value) == len(response.content)
                value = "<length>" if int(value) else "0"
            elif name in self._unstable:
                value = self._placeholder(name, value)
            lines.append(f"{name}: {value}")
        return sorted(lines)

    def _placeholder(self, name: str, value: object) -> str:
        form = self._unstable[name]
        assert re.fullmatch(form, str(value)), f"{name} is {value!r}, expected the form {form}"
        kind = "string" if isinstance(value, str) else "number"
        return f"<{kind} {form}>"
