"""Write access.log beside this file: half an hour of a small site in nginx's format.

The traffic is invented, all addresses are reserved for documentation, and every run writes the same
lines. `python examples/traces/generate.py`
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

TARGET = Path(__file__).with_name("access.log")
BEGAN = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)
MINUTES = 30
AGENT = "Mozilla/5.0"
PAGES = ("/", "/pricing", "/docs", "/docs/start", "/api/search?q=gate", "/api/items/17", "/cart")


def visits(random: Random) -> list[tuple[float, str, str, str]]:
    """When, who, and what they asked for: visitors, a search box, a scraper, a guesser."""
    seen = []
    for visitor in range(1, 25):
        came = random.uniform(0, 60 * MINUTES - 120)
        for _ in range(random.randint(4, 12)):
            seen.append((came, f"192.0.2.{visitor}", "GET", random.choice(PAGES)))
            came += random.expovariate(1 / 9)
    typed = ["g" * length for length in range(1, 29)]  # each key that is pressed asks again
    seen += [(400 + 0.7 * len(q), "192.0.2.77", "GET", f"/api/search?q={q}") for q in typed]
    scraped = [f"/api/search?q=a&page={page}" for page in range(150)]
    seen += [(900 + 0.4 * n, "198.51.100.23", "GET", path) for n, path in enumerate(scraped)]
    guessed = [random.uniform(1_200, 1_290) for _ in range(30)]
    mistaken = [(700 + 8.0 * n, "192.0.2.5") for n in range(4)]
    logins = [*mistaken, *((at, "203.0.113.66") for at in guessed)]
    seen += [(at, who, "POST", "/login") for at, who in logins]
    return sorted(seen)


def line(after: float, who: str, method: str, path: str, size: int) -> str:
    """A line in nginx's format `combined`."""
    at = BEGAN + timedelta(seconds=int(after))
    stamp = at.strftime("%d/Mar/%Y:%H:%M:%S +0000")
    return f'{who} - - [{stamp}] "{method} {path} HTTP/1.1" 200 {size} "-" "{AGENT}"'


def lines() -> list[str]:
    """All lines, the same each time."""
    random = Random(3)  # noqa: S311 (no secret)
    return [line(*visit, random.randint(200, 9_000)) for visit in visits(random)]


if __name__ == "__main__":
    TARGET.write_text("\n".join(lines()) + "\n", encoding="utf-8")
