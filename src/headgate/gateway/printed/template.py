"""Texts with places in them, and what is put there.

A place is `<<name>>`: nothing in the syntaxes that we write looks like that. A place alone on its
line takes several lines, each as far to the right as it stands; with nothing to put there, the line
goes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE: Final = re.compile(r"^([ \t]*)<<(\w+)>>\n|<<(\w+)>>", re.MULTILINE)


def filled(template: str, values: Mapping[str, str]) -> str:
    """*template* with *values* at their places. What is put in is not looked at again.

    Raises `KeyError` for a place that has no value.
    """

    def put(found: re.Match[str]) -> str:
        margin, block, word = found.groups()
        if word is not None:
            return values[word]
        lines = values[block].splitlines()
        return "".join(f"{margin}{line}\n" if line else "\n" for line in lines)

    return _PLACE.sub(put, template)


def quoted(text: str) -> str:
    """*text* as YAML and JSON write it between double quotes."""
    return json.dumps(text)
