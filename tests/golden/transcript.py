"""A transcript of calls for a golden file: what programs rely on apart from what people read.

In the wire file a text for people is `<text>`, and the text file has it under the id of its call.
What differs from run to run is a placeholder there, after a look at its form.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tests.golden.recorder import check_text, check_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

TEXT = "<text>"
SERIES = 60
"""A list of so many numbers is recorded in short."""
PROSE = frozenset({"title", "detail", "message", "hint", "reason", "what", "why", "reasons"})
"""The names of JSON fields that are texts for people."""

SPREAD = {"retry-after": "[1-6]", "$.retry_after": "[1-6]", "$.retry_after_ms": "[1-9][0-9]{3}"}
"""How long to wait, where that is drawn at random."""


class Transcript:
    """The calls of one recording, `wire/<name>.json` and `text/<name>.txt`.

    *unstable* has the form of what is new in each run, by the name of a header or of a JSON field,
    or by its place as `$.a.b`. *rows* has, by the name of a list that is, the form of each field of
    its objects. *masks* are patterns in texts, and what stands for them.
    """

    def __init__(
        self,
        name: str,
        *,
        prose: frozenset[str] = PROSE,
        unstable: Mapping[str, str] | None = None,
        rows: Mapping[str, Mapping[str, str]] | None = None,
        masks: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._prose = prose
        self._unstable = unstable or {}
        self._rows = rows or {}
        self._masks = masks or {}
        self._calls: dict[str, object] = {}
        self._texts: list[str] = []

    def add(self, call: str, wire: object) -> None:
        """Record *wire*, any JSON, as what came of *call*."""
        assert call not in self._calls, f"two calls are named {call!r}"
        self._calls[call] = wire

    def add_text(self, call: str, place: str, text: str) -> None:
        """Record a text for people."""
        for pattern, mask in self._masks.items():
            text = re.sub(pattern, mask, text)
        self._texts.append(f"[{call}] {place}: {text}")

    def add_response(self, call: str, response: httpx.Response, *, is_spread: bool = False) -> None:
        """Record a response over HTTP: its status, all its headers, and its body.

        *is_spread*: what it says about waiting is random.
        """
        if is_spread:
            once = Transcript(
                self._name,
                prose=self._prose,
                unstable={**self._unstable, **SPREAD},
                masks={r"\d+ seconds?": "<seconds>"},
            )
            once.add_response(call, response)
            self._calls |= once._calls
            self._texts += once._texts
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

    def add_head(self, call: str, response: httpx.Response) -> None:
        """Record a response over HTTP without its body."""
        self.add(call, {"status": response.status_code, "headers": self._headers(response)})

    def data(self, call: str, value: Any, place: str = "$", name: str = "") -> Any:
        """*value* as it goes to the wire file; its texts go to the text file."""
        if isinstance(value, dict):
            return self._object(call, value, place)
        if isinstance(value, list):
            if name in self._rows:
                return self._any_rows(name, value)
            if len(value) >= SERIES and all(isinstance(one, int | float) for one in value):
                points = {str(number): one for number, one in enumerate(value) if one}
                return {"points": len(value), "not 0": points}
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

    def _object(self, call: str, value: dict[str, Any], place: str) -> dict[str, Any]:
        names = sorted(value)
        if value.get("type") == "about:blank":  # it has the title of its status (RFC 9457)
            assert value["title"] == HTTPStatus(value["status"]).phrase
            names.remove("title")
        return {name: self.data(call, value[name], f"{place}.{name}", name) for name in names}

    def _any_rows(self, name: str, value: list[Any]) -> list[str]:
        forms = self._rows[name]
        for row in value:
            assert set(row) == set(forms), f"{name} has {row}"
            for field, form in forms.items():
                assert re.fullmatch(form, str(row[field])), f"{name} has {row}"
        return [f"<any number of objects: {', '.join(forms)}>"]

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
