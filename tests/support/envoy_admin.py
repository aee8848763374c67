"""An admin page of Envoy's that says what a test wants."""

from __future__ import annotations

from collections import defaultdict

from headgate.gateway.processes.envoy import AdminError, EnvoyAdmin


class FakeAdmin(EnvoyAdmin):
    """Answers `stats` with *pages* in turn, the last one for ever; None: it does not answer."""

    def __init__(self, *pages: dict[str, int] | None) -> None:
        super().__init__("/nowhere")
        self._pages = list(pages)
        self.posted: list[str] = []
        self.asked: defaultdict[str, int] = defaultdict(int)

    async def stats(self, pattern: str) -> dict[str, int]:
        self.asked[pattern] += 1
        page = self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]
        if page is None:
            raise AdminError("Envoy's admin page does not answer")
        return page

    async def post(self, path: str) -> str:
        if self._pages[0] is None:
            raise AdminError("Envoy's admin page does not answer")
        self.posted.append(path)
        return ""
