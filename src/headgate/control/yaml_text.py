"""The text of a policy file: written from a document, or edited so that comments and style stay.

Only the parts of a file that an edit changes are parsed and written again, by ruamel.yaml: a
changed rule, or another top-level field such as `overrides`. All other lines stay as they are. A
file that cannot be cut into such parts (one in flow style, or with aliases) is edited as a whole.
The result is read back before it is used.
"""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import is_text_of
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Data = dict[str, Any]

_WIDTH: Final = 4_096
"""Columns after which long values are wrapped: never, in practice."""


def text_of(document: Mapping[str, Any], *, is_yaml: bool) -> bytes:
    """Write *document* as YAML, or as JSON (which YAML includes)."""
    if is_yaml:
        text = written(dict(document)).encode()
        if _reads_as(text, document):
            return text
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def edited_text(text: bytes, before: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
    """Return *text*, YAML that says *before*, changed to say *document*."""
    import yaml
    from ruamel.yaml.error import YAMLError

    end = "\r\n" if b"\r\n" in text else "\n"
    lines = text.decode().replace(end, "\n")
    for edit in (_edited_parts, _edited):
        try:
            edited = edit(lines, dict(before), dict(document)).replace("\n", end).encode()
        except (YAMLError, yaml.YAMLError, _UnknownShapeError, *_DISAGREEMENTS):
            continue
        if _reads_as(edited, document):
            return edited
    return text_of(document, is_yaml=True)


class _UnknownShapeError(Exception):
    """The text cannot be cut into parts."""


_DISAGREEMENTS: Final = (AttributeError, KeyError, TypeError, ValueError)
"""Errors where ruamel.yaml reads a part otherwise than the loader: the name `1` as a number."""


def _reads_as(text: bytes, document: Mapping[str, Any]) -> bool:
    try:
        return is_text_of(document, text)
    except PolicyError:
        return False


# ---- parts: the top-level fields, and the rules --------------------------------------------
#
# They are found by the beginnings of lines, which is fast, and may be wrong: reading back shows it.

_FIELD: Final = re.compile(r"""["']?([A-Za-z_]+)["']? *:(?=\s|$)""")
_ITEM: Final = re.compile(r" *- ")


def _cut(lines: list[str], starts: list[int]) -> list[list[str]]:
    """Cut *lines* in parts that begin at *starts*."""
    return [lines[start:end] for start, end in pairwise([*starts, len(lines)])]


def _edited_parts(text: str, before: Data, document: Data) -> str:
    """Edit the top-level fields that differ; of `rules` those that differ."""
    lines = text.splitlines(keepends=True)
    fields = {place: found[1] for place, line in enumerate(lines) if (found := _FIELD.match(line))}
    if not fields or sorted(fields.values()) != sorted(before):
        raise _UnknownShapeError
    if not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    items = [found[0] for line in lines if (found := _ITEM.match(line))]
    offset = len(items[0]) - 2 if items else 2
    parts = lines[: min(fields)]
    for name, part in zip(fields.values(), _cut(lines, [*fields]), strict=True):
        old, new = before[name], document.get(name)
        if name not in document:
            parts += part[_end_before(part, len(part)) :]
        elif old == new:
            parts += part
        elif name == "rules" and old and new and any(map(_ITEM.match, part)):
            parts += _rules(part, old, new)
        else:
            parts.append(_edited("".join(part), {name: old}, {name: new}, offset))
    parts += [written({name: document[name]}, offset) for name in document if name not in before]
    return "".join(parts)


def _rules(lines: list[str], old: list[Any], new: list[Any]) -> Iterator[str]:
    """The lines of the field `rules` for *new*: those of *old* where nothing has changed."""
    lines, after = lines[: (end := _end_before(lines, len(lines)))], lines[end:]
    dash = next(found[0] for line in lines if (found := _ITEM.match(line)))
    cuts = [place for place, line in enumerate(lines) if line.startswith(dash)]
    # Comments above a rule belong to it, those that are indented further to the one before.
    cuts = [cuts[0], *(_end_before(lines, cut, len(dash) - 2) for cut in cuts[1:])]
    chunks = {
        rule["id"]: (rule, "".join(chunk))
        for rule, chunk in zip(old, _cut(lines, cuts), strict=True)
    }
    offset = len(dash) - 2
    yield from lines[: cuts[0]]
    for rule in new:
        known, chunk = chunks.get(rule["id"], (None, ""))
        if known is None:
            yield written({"rules": [rule]}, offset).partition("\n")[2]
        elif known == rule:
            yield chunk
        else:
            text = _edited(f"rules:\n{chunk}", {"rules": [known]}, {"rules": [rule]}, offset)
            yield text.partition("\n")[2]
    yield from after


def _end_before(lines: list[str], end: int, column: int = 0) -> int:
    """Return where the empty lines before *end* begin, and the comments up to *column*."""
    while end > 0:
        text = lines[end - 1].lstrip()
        if text and (text[0] != "#" or len(lines[end - 1]) - len(text) > column):
            break
        end -= 1
    return end


# ---- editing by ruamel.yaml ----------------------------------------------------------------


def _edited(text: str, before: Data, document: Data, offset: int = 2) -> str:
    """Edit *text* as a whole."""
    yaml = _round_trip(offset)
    tree = yaml.load(text)
    _update(tree, before, document)
    return _dumped(yaml, tree)


def written(data: Data, offset: int = 2) -> str:
    """Write *data* as YAML in block style."""
    return _dumped(_round_trip(offset), _quoted(data))


def _round_trip(offset: int) -> Any:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    return yaml


def _dumped(yaml: Any, tree: Any) -> str:
    stream = io.StringIO()
    yaml.dump(tree, stream)
    return stream.getvalue()


def _update(tree: Any, before: Any, after: Any) -> None:
    """Change *tree*, which says *before*, to say *after*."""
    for name in [name for name in before if name not in after]:
        del tree[name]
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            _update(tree[name], old, value)
        elif isinstance(old, list) and isinstance(value, list):
            _update_list(tree[name], old, value)
        else:
            tree[name] = _quoted(value)


def _update_list(tree: Any, before: list[Any], after: list[Any]) -> None:
    """Change a list: what stays keeps its place; what differs at one place is updated there."""
    for place in range(len(before) - 1, -1, -1):
        if len(before) > len(after) and before[place] not in after:
            del tree[place]
            before = before[:place] + before[place + 1 :]
    for place, value in enumerate(after):
        if place >= len(before):
            tree.append(_quoted(value))
        elif isinstance(before[place], dict) and isinstance(value, dict):
            _update(tree[place], before[place], value)
        elif before[place] != value:
            tree[place] = _quoted(value)
    del tree[len(after) :]


def _quoted(value: Any) -> Any:
    """Quote texts that would be read as something else."""
    if isinstance(value, dict):
        return {name: _quoted(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_quoted(one) for one in value]
    if not isinstance(value, str):
        return value
    import yaml
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    try:
        is_plain = yaml.safe_load(value) == value
    except yaml.YAMLError:
        is_plain = False
    return value if is_plain else DoubleQuotedScalarString(value)
