"""The text of a policy file: written from a document, or edited so that comments and style stay.

Only the parts of a file that an edit changes are parsed and written again, by ruamel.yaml: a
changed rule, or another top-level field such as `overrides`. All other lines stay as they are. A
file that cannot be cut into such parts (one in flow style, or with aliases) is edited as a whole.
The result is read back before it is used.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import data_of
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Data = dict[str, Any]

_WIDTH: Final = 4_096
"""Columns after which long values are wrapped: never, in practice."""


def text_of(document: Mapping[str, Any], *, is_yaml: bool) -> bytes:
    """Write *document* as YAML, or as JSON (which YAML includes)."""
    if is_yaml:
        written = _written(dict(document), 2).encode()
        if _reads_as(written, document):
            return written
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def edited_text(text: bytes, before: Mapping[str, Any], document: Mapping[str, Any]) -> bytes:
    """Return *text*, YAML that says *before*, changed to say *document*."""
    import yaml
    from ruamel.yaml.error import YAMLError

    for edit in (_edited_parts, _edited):
        try:
            edited = edit(text.decode(), dict(before), dict(document)).encode()
        except (YAMLError, yaml.YAMLError, _UnknownShapeError, ValueError, AttributeError):
            continue
        if _reads_as(edited, document):
            return edited
    return text_of(document, is_yaml=True)


class _UnknownShapeError(Exception):
    """The text cannot be cut into parts."""


def _reads_as(text: bytes, document: Mapping[str, Any]) -> bool:
    try:
        return data_of("<policy>", text) == document
    except PolicyError:
        return False


# ---- parts: the top-level fields, and the rules --------------------------------------------


@dataclass(slots=True)
class _Field:
    """A top-level field: its line, and for a list in block style the places of its items."""

    name: str
    line: int
    is_block_list: bool = False
    items: list[tuple[int, int]] = field(default_factory=list)


def _fields(text: str) -> list[_Field]:
    """Find the top-level fields of *text*.

    By events, not by a tree: composing one in C keeps other threads waiting, 0.2 s for 9,000 rules.
    """
    import yaml

    found: list[_Field] = []
    depth, is_key = 0, True
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        is_start = isinstance(event, yaml.CollectionStartEvent)
        if depth == 0 and (not isinstance(event, yaml.MappingStartEvent) or _is_flow(event)):
            raise _UnknownShapeError
        if depth == 1 and is_key:
            if not isinstance(event, yaml.ScalarEvent):
                raise _UnknownShapeError
            found.append(_Field(event.value, _place(event)[0]))
        elif depth == 1:
            is_list = isinstance(event, yaml.SequenceStartEvent)
            found[-1].is_block_list = is_list and not _is_flow(event)
        elif depth == 2 and found[-1].is_block_list:
            found[-1].items.append(_place(event))
        is_key = not is_key if depth == 1 else is_key
        depth += is_start
    if not found:
        raise _UnknownShapeError
    return found


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line, event.start_mark.column


def _is_flow(event: Any) -> bool:
    return bool(event.flow_style)


def _edited_parts(text: str, before: Data, document: Data) -> str:
    """Edit the top-level fields that differ; of `rules` those that differ."""
    fields = _fields(text)
    lines = text.splitlines(keepends=True)
    if not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    columns = [one.items[0][1] for one in fields if one.name == "rules" and one.items]
    offset = max(0, columns[0] - 2) if columns else 2
    parts = lines[: fields[0].line]
    ends = [*(one.line for one in fields[1:]), len(lines)]
    for one, end in zip(fields, ends, strict=True):
        name, part = one.name, lines[one.line : end]
        old, new = before.get(name), document.get(name)
        if name not in document:
            parts += _comments_below(part)
        elif old == new:
            parts += part
        elif name == "rules" and old and new and one.items:
            first = one.items[0][0]
            cuts = [line - first for line, _ in one.items]
            parts += lines[one.line : first]
            parts += _rules(lines[first:end], cuts, old, new, offset)
        else:
            parts.append(_edited("".join(part), {name: old}, {name: new}, offset))
    known = {one.name for one in fields}
    parts += [_written({name: document[name]}, offset) for name in document if name not in known]
    return "".join(parts)


def _rules(
    lines: list[str], cuts: list[int], old: list[Any], new: list[Any], offset: int
) -> Iterator[str]:
    """The lines of the rules *new*: those of *old* where nothing has changed."""
    if any(not lines[cut].lstrip().startswith("- ") for cut in cuts):
        raise _UnknownShapeError
    # Comments above a rule belong to it.
    cuts = [cuts[0], *(cut - len(_comments_below(lines[:cut])) for cut in cuts[1:])]
    chunks = {
        rule["id"]: (rule, "".join(lines[start:end]))
        for rule, (start, end) in zip(old, pairwise([*cuts, len(lines)]), strict=True)
    }
    for rule in new:
        known, chunk = chunks.get(rule["id"], (None, ""))
        if known is None:
            yield _written({"rules": [rule]}, offset).partition("\n")[2]
        elif known == rule:
            yield chunk
        else:
            text = _edited(f"rules:\n{chunk}", {"rules": [known]}, {"rules": [rule]}, offset)
            yield text.partition("\n")[2]


def _comments_below(lines: list[str]) -> list[str]:
    """The comments and empty lines at the end of *lines*."""
    count = 0
    while count < len(lines) and lines[-1 - count].lstrip()[:1] in ("", "#"):
        count += 1
    return lines[len(lines) - count :]


# ---- editing by ruamel.yaml ----------------------------------------------------------------


def _edited(text: str, before: Data, document: Data, offset: int = 2) -> str:
    """Edit *text* as a whole."""
    yaml = _round_trip(offset)
    tree = yaml.load(text)
    _update(tree, before, document)
    return _dumped(yaml, tree)


def _written(data: Data, offset: int) -> str:
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
