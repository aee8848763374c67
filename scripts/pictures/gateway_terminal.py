"""Draw a terminal in which the demo of the gateway runs: docs/img/gateway-terminal.svg.

`headgate up` is started, the lines that it offers are run, and what they say is drawn: nothing is
made up but the colours. It needs curl, and the ports 8080, 8090 and 8091.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.gateway.demo import lines_to_try

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = Path(__file__).parents[2] / "docs" / "img" / "gateway-terminal.svg"
GATEWAY, SERVICE = "http://127.0.0.1:8080", "http://127.0.0.1:8090"
COLUMNS, LINE, COLUMN, MARGIN = 104, 19, 8.4, 18
SHOWN_HEADERS = ("HTTP/", "x-ratelimit", "ratelimit", "retry-after")
FONTS = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"
COLOURS: Final = {
    "prompt": "#7ee787",
    "typed": "#ffffff",
    "said": "#b6c2cf",
    "good": "#7ee787",
    "bad": "#ff9b8e",
}


@contextmanager
def demo() -> Iterator[tuple[list[str], str]]:
    """What `headgate up` says first, and the token that it has made."""
    call = [sys.executable, "-m", "headgate.cli", "up"]
    with subprocess.Popen(  # noqa: S603 - our own program
        call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = []
            for line in process.stdout:
                said.append(line.rstrip())
                if line.startswith("Ctrl-C"):
                    break
            found = re.search(r"admin token +(\S+)", "\n".join(said))
            if found is None:
                raise SystemExit("\n".join(said))
            yield said, found[1]
        finally:
            process.terminate()
            process.stdout.read()


def answer(line: str) -> list[str]:
    """What *line*, a command, prints."""
    done = subprocess.run(  # noqa: S603 - what the demo offers
        shlex.split(line.replace("curl", "curl -s", 1)), capture_output=True, text=True, check=True
    )
    return [shown for shown in done.stdout.splitlines() if shown.strip()]


def headers_first(shown: list[str]) -> list[str]:
    """The status, the headers that are about limits, and the body."""
    return [one for one in shown if one.startswith((*SHOWN_HEADERS, "{"))]


def attempts(shown: list[str]) -> list[str]:
    """What each attempt got, on one line each."""
    return [" ".join(one.split()) for one in re.findall(r"(?s).*?-> \d+", "\n".join(shown))]


def lines() -> list[tuple[str, str]]:
    """The lines of the terminal: how each is drawn, and its text."""
    with demo() as (said, token):
        first, second, third = lines_to_try(gateway=GATEWAY, service=SERVICE, token=token)
        made: list[tuple[str, str]] = [("prompt", "make run")]
        begins = said.index(_UP)
        made += [("said", one.replace(token, "$TOKEN")) for one in said[begins : begins + 4]]
        for command, shorten in ((first, headers_first), (second, attempts), (third, list)):
            made += [("said", ""), ("prompt", _without_token(command, token))]
            made += [(_colour(one), one) for one in shorten(answer(command))]
        made += [("said", ""), ("prompt", second)]
        made += [(_colour(one), one) for one in attempts(answer(second))]
    return made


_UP: Final = "headgate is up: Envoy, the decision service, and a small app behind them."


def _without_token(command: str, token: str) -> str:
    return command.replace(f"'Authorization: Bearer {token}'", '"Authorization: Bearer $TOKEN"')


def _colour(text: str) -> str:
    if re.search(r"429|rate_limit_exceeded", text):
        return "bad"
    return "good" if re.search(r" 200|-> 401|rule_id", text) else "said"


def wrapped(made: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The same in lines that fit: what is typed goes on in the next line, what is said is cut."""
    for kind, text in made:
        if kind == "prompt":
            first, *others = _typed(text)
            yield kind, first
            yield from (("typed", one) for one in others)
        elif len(text) > COLUMNS:
            yield kind, f"{text[: COLUMNS - 12]} \u2026 {text[-8:]}"
        else:
            yield kind, text


def _typed(command: str) -> list[str]:
    """*command* in lines that fit, broken as a shell takes it: before an option or a URL."""
    made = [""]
    for part in re.split(r" (?=-[dwHX] |'?http)", command):
        if made[-1] and len(made[-1]) + len(part) > COLUMNS - 5:
            made[-1] += " \\"
            made.append(f"    {part}")
        else:
            made[-1] = f"{made[-1]} {part}" if made[-1] else part
    return made


def drawn(made: list[tuple[str, str]]) -> str:
    """The terminal as SVG."""
    shown = list(wrapped(made))
    width, height = COLUMNS * COLUMN + 2 * MARGIN, len(shown) * LINE + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        "<title>headgate up: a request passes, logins are refused, a rule is changed</title>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#12181f"/>',
        f'<g font-family="{FONTS}" font-size="14">',
    ]
    for number, (kind, text) in enumerate(shown):
        y = MARGIN + LINE * number + 14
        colour = COLOURS["typed" if kind == "prompt" else kind]
        begin = (
            f'<tspan fill="{COLOURS["prompt"]}">{_kept("$ ")}</tspan>' if kind == "prompt" else ""
        )
        size = COLUMN * (len(text) + 2 * (kind == "prompt"))
        fit = f'textLength="{size:g}" lengthAdjust="spacingAndGlyphs"'
        if text:
            parts.append(
                f'<text x="{MARGIN}" y="{y}" fill="{colour}" {fit}>{begin}{_kept(text)}</text>'
            )
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _kept(text: str) -> str:
    """*text* in XML, with all its spaces."""
    return escape(text, quote=False).replace(" ", "\u00a0")


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(drawn(lines()), encoding="utf-8")


if __name__ == "__main__":
    main()
