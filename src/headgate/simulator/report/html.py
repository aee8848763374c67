"""The report as a page: one file that needs no script, no network and no explanation.

What is said comes first: the conclusion, the key figures. Then over time, then rule by rule, then
what the words mean. Plots are SVG inside the page and carry their content in words too.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from headgate.simulator.report.conclusion import conclusion, enforced
from headgate.simulator.report.extra import needing_plots
from headgate.simulator.report.html_rules import rules_section
from headgate.simulator.report.html_time import time_section
from headgate.simulator.report.markup import named, section, tile, told
from headgate.simulator.report.outcomes import checked, notes_of
from headgate.simulator.report.words import (
    change,
    count,
    counted,
    period,
    printable,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulator.results import Outcome

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_NOTE: Final = 300
_ARROW: Final = "\N{RIGHTWARDS ARROW}"
_REFUSED: Final = (
    "The policy would have said no, with status 429 and when to come back. Nobody was really "
    "refused: this is a simulation."
)
_SHADOW: Final = (
    "A rule that only watches. What it would refuse is counted here, but it refuses nobody, and it "
    "is not part of the figures on top."
)
_WORDS: Final = (
    ("request", "One line of the trace, or one request of a workload."),
    ("refused", _REFUSED),
    (
        "caller",
        "Who asks, by API key, user or tenant where a request says one, else by address.",
    ),
    ("rule", "Which requests are counted, by whom, and how many are admitted in which time."),
    ("key", "The counter that a rule keeps for a caller."),
    ("shadow", _SHADOW),
    ("newly limited", "A key that has something refused after the change, and had nothing before."),
    ("relieved", "A key that had something refused before the change, and has nothing after."),
)
_FOOTER: Final = (
    "<footer>Made by <code>headgate simulate</code>: the traffic was replayed through the rules on "
    "virtual time.</footer>"
)
_OF_TWO: Final = 2
"""How many of the words are needed for two policies only; they come last."""


def html_report(outcomes: Sequence[Outcome], *, title: str) -> str:
    """One policy, or a change from the first to the second, as a page of HTML.

    The same outcomes give the same page, byte for byte. Raises `OptionError` unless there are one
    or two, and `MissingPackageError` without matplotlib.
    """
    given = checked(outcomes)
    needing_plots()
    style = (files(__package__) / "page.css").read_text(encoding="utf-8")
    shown = escape(printable(title))
    body = "\n".join(
        [
            f"<header>\n<h1>{shown}</h1>",
            f'<p class="conclusion">{_unbroken(conclusion(given, named=named))}</p>',
            _about(given),
            "</header>\n<main>",
            f'<dl class="tiles">{"".join(_tiles(given))}</dl>',
            time_section(given),
            rules_section(given),
            _words(given),
            "</main>",
            _FOOTER,
        ]
    )
    kind = "one" if len(given) == 1 else "two"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown}</title>\n<style>\n{style}</style>\n</head>\n"
        f'<body class="{kind}">\n{body}\n</body>\n</html>\n'
    )


def _unbroken(text: str) -> str:
    """*text* in which no line ends before a percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _about(outcomes: Sequence[Outcome]) -> str:
    first = outcomes[0]
    names = [
        named(one.policy_name) + (f" (revision {one.revision})" if one.revision else "")
        for one in outcomes
    ]
    policies = f" {_ARROW} ".join(names)
    traffic = period(first.began_ns, first.ended_ns)
    lines = [f'<p class="faint">Policy: {policies}. Traffic: {traffic}.</p>']
    if notes := notes_of(outcomes):
        items = "".join(f"<li>{told(note, _NOTE)}</li>" for note in notes)
        lines.append(f'<div class="note">To know about these figures:<ul>{items}</ul></div>')
    return "\n".join(lines)


def _tiles(outcomes: Sequence[Outcome]) -> list[str]:
    last, first = outcomes[-1], outcomes[0]
    both = (first, last) if len(outcomes) > 1 else (last,)

    def figures(*numbers: int) -> str:
        return f" {_ARROW} ".join(map(count, dict.fromkeys(numbers)))

    def remark(one: int, whole: int, before: int) -> str:
        said = f"{share(one, whole)} of {count(whole)}"
        if len(outcomes) == 1:
            return said
        return f"{said}; {change(one - before) if one != before else 'as before'}"

    refusing = [sum(bool(rule.denied) for rule in enforced(one)) for one in both]
    rules = f"of {counted(len(enforced(last)), 'rule')} that enforce"
    asked = [one.requests for one in both]
    return [
        tile("Requests", figures(*asked)),
        tile(
            "Refused",
            figures(*[one.denied for one in both]),
            remark(last.denied, last.requests, first.denied),
        ),
        tile(
            "Callers refused something",
            figures(*[one.callers_denied for one in both]),
            remark(last.callers_denied, last.callers, first.callers_denied),
        ),
        tile("Rules that refused", figures(*refusing), rules),
    ]


def _words(outcomes: Sequence[Outcome]) -> str:
    used = _WORDS if len(outcomes) > 1 else _WORDS[:-_OF_TWO]
    items = "".join(f"<dt>{word}</dt><dd>{meaning}</dd>" for word, meaning in used)
    return section("What the words mean", f'<dl class="words">{items}</dl>')
