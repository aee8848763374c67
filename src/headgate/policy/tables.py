"""Models as stdlib dataclasses that pydantic validates, and everything derived from them.

`@table(...)` gives a dataclass its form in a file: the names of its fields, what is required, what
may stand together. From the one declaration follow reading (`read`), JSON Schema (`json_schema`),
the reference page (`docs_of`) and plain data (`to_data`). pydantic is imported by the first use, so
that a program without rules files does not need it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints

from headgate.errors import not_installed
from headgate.policy.diagnostics import MOST_PROBLEMS
from headgate.policy.document import Scalar, Table
from headgate.policy.fields import (
    CompoundFieldError,
    FieldError,
    FieldType,
    Schema,
    expected,
    not_among,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headgate.policy.document import Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a dataclass in a file.

    *what* names it in messages. *names* are those of fields that are called otherwise in the file.
    *also* are fields that are checked and not kept, *hidden* those that a file does not have.
    *shape* finds flaws in the presence of keys, *finish* makes the final value of one without
    flaws. *schema* is added to the JSON Schema. *always* are written even if they are the default,
    *needs* must be given although they have a default; *order* are the names that come first.
    *plain* completes the plain data of a value. *synonyms* are words that people use for a field.
    """

    what: str
    names: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, FieldType] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    shape: Callable[[Table], Iterable[FieldError]] | None = None
    finish: Callable[..., Any] | None = None
    schema: Callable[[], Schema] | Schema = field(default_factory=dict)
    always: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    plain: Callable[[Any, dict[str, Any]], dict[str, Any]] | None = None
    synonyms: Mapping[str, str] = field(default_factory=dict)


_FORMS: Final[dict[type[Any], Form]] = {}


def table(what: str, **options: Any) -> Callable[[type[T]], type[T]]:
    """A dataclass with a form in a file; see `Form`."""

    def declare(kind: type[T]) -> type[T]:
        form = _FORMS[kind] = Form(what, **options)
        hooks: Any = kind
        hooks.__pydantic_config__ = {
            "extra": "forbid",
            "strict": True,
            "alias_generator": lambda name: form.names.get(name, name),
        }
        hooks.__get_pydantic_core_schema__ = classmethod(_core_schema)
        return kind

    return declare


@dataclass(frozen=True, slots=True)
class Known:
    """The fields of a model by their names in a file."""

    fields: Mapping[str, Any]
    """Each with its type: a `FieldType`, a model, or None."""
    attributes: Mapping[str, str]
    required: frozenset[str]
    names: tuple[str, ...]


def _make_known_fields(kind: Any) -> Known:
    """The fields of the model *kind*, a class."""
    form = _FORMS[kind]
    hints = get_type_hints(kind, include_extras=True)
    found: dict[str, Any] = {}
    attributes: dict[str, str] = {}
    required = set(form.needs)
    for one in fields(kind):
        if one.name in form.hidden:
            continue
        name = form.names.get(one.name, one.name)
        found[name] = _type_of(hints[one.name])
        attributes[name] = one.name
        if one.default is MISSING and one.default_factory is MISSING:
            required.add(name)
    names = [*found, *form.also]
    ordered = (*(name for name in form.order if name in names), *names)
    return Known(
        {**found, **form.also}, attributes, frozenset(required), tuple(dict.fromkeys(ordered))
    )


known_fields: Final[Callable[[Any], Known]] = cache(_make_known_fields)


def _type_of(hint: Any) -> Any:
    for part in (*getattr(hint, "__metadata__", ()), hint, *get_args(hint)):
        if isinstance(part, FieldType | Short):
            return part
        if isinstance(part, type) and part in _FORMS:
            return part
    return None


def read(kind: type[T], node: Node, context: object = None) -> T:
    """The model *kind* of *node*.

    Raises `CompoundFieldError`; `MissingPackageError` without pydantic.
    """
    adapter, error_type = _adapter(kind)
    try:
        made: T = adapter.validate_python(node, context=context)
    except error_type as error:
        known = known_fields(kind)
        later = known.fields.keys() - known.required
        flaws = sorted(_flaws_in(error), key=lambda flaw: not later.isdisjoint(flaw.path[:1]))
        raise CompoundFieldError(flaws) from None
    return made


def _make_adapter(kind: Any) -> tuple[Any, type[ValueError]]:
    try:
        from pydantic import TypeAdapter, ValidationError
    except ModuleNotFoundError as error:
        raise not_installed("rules", error) from error
    return TypeAdapter(kind), ValidationError


_adapter: Final[Callable[[Any], tuple[Any, type[ValueError]]]] = cache(_make_adapter)


def _flaws_in(error: Any) -> Iterator[FieldError]:
    for found in error.errors(include_url=False, include_input=False):
        if found["type"] == "missing":
            continue  # reported with what is expected
        cause = found.get("ctx", {}).get("error")
        flaws = cause.flaws if isinstance(cause, CompoundFieldError) else [cause]
        for flaw in flaws:
            one = flaw if isinstance(flaw, FieldError) else FieldError(found["msg"])
            yield one.under(*found["loc"])


def _core_schema(kind: type[Any], source: Any, handler: Any) -> Any:
    from pydantic_core import core_schema

    inner = handler(source)
    inner["strict"] = False  # of the dataclass itself: it is made of a mapping
    return core_schema.with_info_wrap_validator_function(partial(_read_table, kind), inner)


def _read_table(kind: type[Any], node: Any, handler: Any, info: Any) -> Any:
    form, known = _FORMS[kind], known_fields(kind)
    if not isinstance(node, Table):
        raise expected(node, f"{form.what}: a mapping with {', '.join(known.names)}")
    entries = node.entries
    flaws = [*form.shape(node)] if form.shape is not None else []
    is_simple = not (flaws or form.also) and known.required <= entries.keys()
    if is_simple and entries.keys() <= known.fields.keys():
        made = handler(entries)
    else:
        made = _read_flawed(kind, node, handler, flaws)
    return made if form.finish is None else form.finish(made, node, info.context)


def _read_flawed(kind: type[Any], node: Table, handler: Any, flaws: list[FieldError]) -> Any:
    """The same for a mapping that may have other fields, or lack some."""
    from pydantic import ValidationError

    form, known = _FORMS[kind], known_fields(kind)
    unknown, meant = _unknown(node, form, known)
    lacking = [name for name in known.names if name in known.required - node.entries.keys() - meant]
    found = [*unknown, *(_missing(name, known.fields[name]) for name in lacking)]
    found += [flaw for flaw in flaws if not meant & flaw.instead_of]
    for name, kind_of in form.also.items():
        if name in node.entries:
            try:
                kind_of.read(node.entries[name])
            except FieldError as flaw:
                found.append(flaw.under(name))
    rest = {name: each for name, each in node.entries.items() if name in known.attributes}
    made = None
    try:
        made = handler(rest)
    except ValidationError as error:
        stray = {flaw.path[:1] for flaw in flaws if flaw.is_stray}
        found += [flaw for flaw in _flaws_in(error) if flaw.path[:1] not in stray]
    if found:
        raise CompoundFieldError(found)
    return made


def _unknown(node: Table, form: Form, known: Known) -> tuple[list[FieldError], set[str]]:
    """The flaws of unknown fields, and the names that were probably meant."""
    flaws: list[FieldError] = []
    meant: set[str] = set()
    for name in node.entries:
        if name in known.fields:
            continue
        flaw = not_among(name, known.names, "unknown field")
        if name in form.synonyms:
            flaw.hint = f"did you mean {form.synonyms[name]!r}?"
        meant.update(each for each in known.names if flaw.hint == f"did you mean {each!r}?")
        flaw.at_key = True
        flaws.append(flaw.under(name))
        if len(flaws) >= MOST_PROBLEMS:
            break
    return flaws, meant


def _missing(name: str, kind: Any) -> FieldError:
    what = (
        _FORMS[kind].what
        if isinstance(kind, type) and kind in _FORMS
        else getattr(kind, "what", "a value")
    )
    return FieldError(f"missing; expected {what}", path=(name,))


@dataclass(frozen=True)
class Short:
    """A value alone stands for the field *name* of a model."""

    name: str
    what: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self._long, handler(source))

    def _long(self, node: Node) -> Table:
        if isinstance(node, Table):
            return node
        key = Scalar(self.name, is_plain=False, place=node.place)
        return Table(node.place, {self.name: node}, {self.name: key})

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        long = handler(core)
        short = handler.resolve_ref_schema(long)["properties"][self.name]
        return {"anyOf": [short, long]}


class ModelField(FieldType):
    """The value that the model *kind* makes, or, of a scalar, the type *alone*."""

    def __init__(self, kind: type[Any], alone: FieldType | None = None) -> None:
        self.kind = kind
        self.alone = alone
        self.what = _FORMS[kind].what

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        inner = handler.generate_schema(self.kind)
        if self.alone is None:
            return inner
        return core_schema.no_info_wrap_validator_function(self._read, inner)

    def _read(self, node: Node, handler: Any) -> Any:
        if self.alone is None or isinstance(node, Table):
            return handler(node)
        return self.alone.read(node)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        found: Schema = handler(core)
        return found if self.alone is None else {"anyOf": [self.alone.schema(), found]}

    def write(self, value: Any) -> object:
        return to_data(value) if is_dataclass(value) else value


@dataclass(frozen=True)
class Switch:
    """True stands for a model with its defaults, false for none."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(self._read, handler(source))

    def _read(self, node: Node, handler: Any) -> Any:
        if isinstance(node, Scalar) and node.boolean is not None:
            return handler(Table(node.place)) if node.boolean else None
        if not isinstance(node, Table):
            raise expected(node, self.what)
        return handler(node)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        return {"anyOf": [{"type": "boolean"}, _not_null(handler(core))]}


def _source_of(kind: Any) -> str:
    try:
        return inspect.getsource(kind)
    except OSError:  # an installation without sources has no help
        return "class _: ..."


def _make_docs_of(kind: Any) -> Mapping[str, str]:
    """The docstrings of the fields of *kind*, by their names in a file."""
    found: dict[str, str] = {}
    form = _FORMS.get(kind)
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        (tree,) = ast.parse(textwrap.dedent(_source_of(base))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for one, after in pairwise(body):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                name = (
                    one.target.id if form is None else form.names.get(one.target.id, one.target.id)
                )
                text = after.value if isinstance(after, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[name] = inspect.cleandoc(text.value).replace("\n", " ")
    return found


docs_of: Final[Callable[[Any], Mapping[str, str]]] = cache(_make_docs_of)


def _described(kind: Any, schema: Schema) -> Schema:
    """The JSON Schema of *kind* with what its form and its docstrings add to *schema*."""
    form, known, docs = _FORMS[kind], known_fields(kind), docs_of(kind)
    properties: Schema = {}
    for name in known.names:
        one = _not_null(schema["properties"].get(name) or known.fields[name].schema())
        one.pop("title", None)
        if not isinstance(one.get("default"), str | int) or name in known.required:
            one.pop("default", None)
        if name in docs:
            one["description"] = docs[name]
        properties[name] = one
    first = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    described = {"title": form.what, "description": first.replace("\n", " ")}
    required = {"required": sorted(known.required)} if known.required else {}
    more = form.schema() if callable(form.schema) else form.schema
    return {**schema, **described, "properties": properties, **required, **more}


def _not_null(schema: Schema) -> Schema:
    """*schema* without the null of an optional field: a file leaves such a field out."""
    if {"type": "null"} not in schema.get("anyOf", ()):
        return schema
    rest = [one for one in schema.pop("anyOf") if one != {"type": "null"}]
    return {**schema, **(rest[0] if len(rest) == 1 else {"anyOf": rest})}


def json_schema(kind: type[Any]) -> Schema:
    """The JSON Schema of the model *kind*."""
    adapter, _ = _adapter(kind)
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def dataclass_schema(self, schema: Any) -> Schema:
            return _described(schema["cls"], super().dataclass_schema(schema))

    found: Schema = adapter.json_schema(schema_generator=Generator)
    return found


def field_rows(kind: type[Any]) -> Iterator[str]:
    """The fields of *kind* as a table in Markdown."""
    known, docs = known_fields(kind), docs_of(kind)
    declared = {one.name: one for one in fields(kind)}
    yield from ("| field | default | |", "|---|---|---|")
    for name in known.names:
        default = ""
        if name in known.required:
            default = "required"
        elif name in known.attributes:
            value = declared[known.attributes[name]].default
            is_shown = value not in (MISSING, None, (), "") and not is_dataclass(value)
            default = f"`{_shown(known.fields[name], value)}`" if is_shown else ""
        yield f"| `{name}` | {default} | {docs.get(name, '')} |"


def _shown(kind: Any, value: Any) -> str:
    written = kind.write(value) if isinstance(kind, FieldType) else value
    return str(written).lower() if isinstance(written, bool) else str(written)


def to_data(made: Any) -> dict[str, Any]:
    """The model *made* as plain data: what a reader of JSON would have made of its file."""
    form, known = _FORMS[type(made)], known_fields(type(made))
    declared = {one.name: one for one in fields(made)}
    data: dict[str, Any] = {}
    for name in known.names:
        if name not in known.attributes:
            continue
        one = declared[known.attributes[name]]
        value = getattr(made, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value is not None and (value != default or name in form.always):
            data[name] = _written(known.fields[name], value)
    return data if form.plain is None else form.plain(made, data)


def _written(kind: Any, value: Any) -> object:
    if isinstance(kind, FieldType):
        return kind.write(value)
    if is_dataclass(value):
        data = to_data(value)
        return data[kind.name] if isinstance(kind, Short) and set(data) <= {kind.name} else data
    return value
