"""Models as stdlib dataclasses that pydantic validates, and everything derived from them.

`@table(...)` gives a dataclass its form in a file: the names of its fields, what is required, what
may stand together. From the one declaration follow reading (`read`), JSON Schema (`json_schema`),
the reference page (`field_rows`) and plain data (`to_data`). pydantic is imported by the first use,
so that a program without rules files does not need it.
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
from headgate.policy.document import Scalar, Table
from headgate.policy.fields import (
    FieldError,
    FieldType,
    InvalidValueError,
    Schema,
    expected,
    not_among,
)
from headgate.policy.problems import MAX_PROBLEMS, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headgate.policy.document import Node

T = TypeVar("T")


def _cached(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """`functools.cache` for functions of a class, which mypy does not take for hashable."""
    return cache(make)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a dataclass in a file.

    *what* names it in messages. *names* are those of fields that are called otherwise in the file,
    *synonyms* words that people use for a field. *also* are fields that are checked and not kept,
    *hidden* those that a file does not have. *shape* checks which keys stand together, *finish*
    makes the final value; with *makes* that is an instance of another class, whose attributes have
    the same names. *schema* is added to the JSON Schema. *always* are written even if they are the
    default, *needs* must be given although they have a default; *order* are the names that come
    first. *plain* completes the plain data of a value.
    """

    what: str
    names: Mapping[str, str] = field(default_factory=dict)
    synonyms: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, FieldType] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    shape: Callable[[Table], Iterable[FieldError]] | None = None
    finish: Callable[..., Any] | None = None
    makes: type[Any] | None = None
    schema: Callable[[], Schema] | Schema = field(default_factory=dict)
    always: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    plain: Callable[[Any, dict[str, Any]], dict[str, Any]] | None = None


_FORMS: Final[dict[type[Any], Form]] = {}
_MODELS: Final[dict[type[Any], type[Any]]] = {}
"""The model of each class of values."""


def table(what: str, **options: Any) -> Callable[[type[T]], type[T]]:
    """A dataclass with a form in a file; see `Form`."""

    def declare(kind: type[T]) -> type[T]:
        form = _FORMS[kind] = Form(what, **options)
        _MODELS[form.makes or kind] = kind
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


@_cached
def known_fields(kind: Any) -> Known:
    """The fields of the model *kind*, a class."""
    form = _FORMS[kind]
    hints = get_type_hints(kind, include_extras=True)
    declared = [one for one in fields(kind) if one.name not in form.hidden]
    attributes = {form.names.get(one.name, one.name): one.name for one in declared}
    required = {
        name
        for name, one in zip(attributes, declared, strict=True)
        if one.default is MISSING and one.default_factory is MISSING
    }
    found = {name: _type_of(hints[own]) for name, own in attributes.items()} | dict(form.also)
    names = dict.fromkeys((*(name for name in form.order if name in found), *found))
    return Known(found, attributes, frozenset(required | {*form.needs}), tuple(names))


def _type_of(hint: Any) -> Any:
    for part in (*getattr(hint, "__metadata__", ()), hint, *get_args(hint)):
        if isinstance(part, FieldType) or (isinstance(part, type) and part in _FORMS):
            return part
    return None


def read(kind: type[T], node: Node, context: object = None) -> T:
    """The value that the model *kind* makes of *node*.

    Raises `InvalidValueError`; `MissingPackageError` without pydantic.
    """
    adapter, error_type = _adapter(kind)
    try:
        made: T = adapter.validate_python(node, context=context)
    except error_type as error:
        known = known_fields(kind)
        later = known.fields.keys() - known.required
        errors = sorted(_errors_in(error), key=lambda one: not later.isdisjoint(one.path[:1]))
        raise InvalidValueError(errors) from None
    return made


@_cached
def _adapter(kind: Any) -> tuple[Any, type[ValueError]]:
    try:
        from pydantic import TypeAdapter, ValidationError
    except ModuleNotFoundError as error:
        raise not_installed("rules", error) from error
    return TypeAdapter(kind), ValidationError


def _errors_in(error: Any) -> Iterator[FieldError]:
    for found in error.errors(include_url=False, include_input=False):
        if found["type"] == "missing":
            continue  # reported with what is expected
        cause = found.get("ctx", {}).get("error")
        errors = (
            cause.errors if isinstance(cause, InvalidValueError) else [FieldError(found["msg"])]
        )
        for one in errors:
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
    shape = [*form.shape(node)] if form.shape is not None else []
    is_simple = not (shape or form.also) and known.required <= entries.keys()
    if is_simple and entries.keys() <= known.fields.keys():
        made = handler(entries)
    else:
        made = _read_checked(kind, node, handler, shape)
    if form.finish is not None:
        return form.finish(made, node, info.context)
    return made if form.makes is None else form.makes(**_attributes(made, form.makes))


def _attributes(made: Any, kind: type[Any]) -> dict[str, Any]:
    return {one.name: getattr(made, one.name) for one in fields(kind) if hasattr(made, one.name)}


def _read_checked(kind: type[Any], node: Table, handler: Any, shape: list[FieldError]) -> Any:
    """The same for a mapping that may have other fields, or lack some."""
    from pydantic import ValidationError

    form, known, entries = _FORMS[kind], known_fields(kind), node.entries
    found, meant = _unknown(node, form, known)
    for name in known.names:
        if name in known.required and name not in entries and name not in meant:
            one = known.fields[name]
            what = _FORMS[one].what if isinstance(one, type) else getattr(one, "what", "a value")
            found.append(FieldError(f"missing; expected {what}", path=(name,)))
    found += [error for error in shape if not meant & error.instead_of]
    for name in form.also.keys() & entries.keys():
        try:
            form.also[name].read(entries[name])
        except InvalidValueError as error:
            found += [one.under(name) for one in error.errors]
    made = None
    try:
        made = handler({name: each for name, each in entries.items() if name in known.attributes})
    except ValidationError as error:
        stray = {one.path[:1] for one in shape if one.is_stray}
        found += [one for one in _errors_in(error) if one.path[:1] not in stray]
    if found:
        raise InvalidValueError(found)
    return made


def _unknown(node: Table, form: Form, known: Known) -> tuple[list[FieldError], set[str]]:
    """The errors of unknown fields, and the names that were probably meant."""
    errors: list[FieldError] = []
    meant: set[str] = set()
    for name in [name for name in node.entries if name not in known.fields][:MAX_PROBLEMS]:
        error = not_among(name, known.names, "unknown field")
        if name in form.synonyms:
            error.hint = did_you_mean(form.synonyms[name])
        meant.update(each for each in known.names if error.hint == did_you_mean(each))
        error.at_key = True
        errors.append(error.under(name))
    return errors, meant


class ModelField(FieldType):
    """The value that the model *kind* makes.

    A value that is not a mapping may stand for it: for its field *short*; as a value of the type
    *alone*; or, with *switch*, true for all defaults and false for None.
    """

    def __init__(
        self,
        kind: type[Any],
        *,
        short: str = "",
        alone: FieldType | None = None,
        switch: bool = False,
    ) -> None:
        self.kind = kind
        self.short = short
        self.alone = alone
        self.switch = switch
        self.what = _FORMS[kind].what

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        inner = handler.generate_schema(self.kind)
        return core_schema.no_info_wrap_validator_function(self._read, inner)

    def _read(self, node: Node, handler: Any) -> Any:
        if isinstance(node, Table):
            return handler(node)
        if self.short:
            key = Scalar(self.short, is_plain=False, place=node.place)
            return handler(Table(node.place, {self.short: node}, {self.short: key}))
        if self.switch and isinstance(node, Scalar) and node.boolean is not None:
            return handler(Table(node.place)) if node.boolean else None
        if self.switch:
            raise expected(node, "true, false or a mapping")
        return handler(node) if self.alone is None else self.alone.read(node)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        long: Schema = handler(core)
        if self.short:
            return {"anyOf": [handler.resolve_ref_schema(long)["properties"][self.short], long]}
        if self.switch:
            return {"anyOf": [{"type": "boolean"}, long]}
        return long if self.alone is None else {"anyOf": [self.alone.schema(), long]}

    def write(self, value: Any) -> object:
        if not is_dataclass(value):
            return value
        data = to_data(value)
        return data[self.short] if self.short and set(data) <= {self.short} else data


def _source_of(kind: Any) -> str:
    try:
        return inspect.getsource(kind)
    except OSError:  # an installation without sources has no help
        return "class _: ..."


@_cached
def docs_of(kind: Any) -> Mapping[str, str]:
    """The docstrings of the fields of *kind*, by their names in a file."""
    found: dict[str, str] = {}
    names = _FORMS[kind].names if kind in _FORMS else {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        (tree,) = ast.parse(textwrap.dedent(_source_of(base))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for one, after in pairwise(body):
            if isinstance(one, ast.AnnAssign) and isinstance(after, ast.Expr):
                name, text = ast.unparse(one.target), ast.literal_eval(after.value)
                found[names.get(name, name)] = inspect.cleandoc(text).replace("\n", " ")
    return found


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
            if value not in (MISSING, None, (), "") and not is_dataclass(value):
                written = _written(known.fields[name], value)
                default = f"`{str(written).lower() if isinstance(written, bool) else written}`"
        yield f"| `{name}` | {default} | {docs.get(name, '')} |"


def to_data(made: Any) -> dict[str, Any]:
    """The value *made* as plain data: what a reader of JSON would have made of its file."""
    kind = _MODELS[type(made)]
    form, known = _FORMS[kind], known_fields(kind)
    declared = {one.name: one for one in fields(kind)}
    data: dict[str, Any] = {}
    for name in known.names:
        one = declared.get(known.attributes.get(name, ""))
        value = None if one is None else getattr(made, one.name, None)
        if one is None or value is None:
            continue
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value != default or name in form.always:
            data[name] = _written(known.fields[name], value)
    return data if form.plain is None else form.plain(made, data)


def _written(kind: Any, value: Any) -> object:
    if isinstance(kind, FieldType):
        return kind.write(value)
    return to_data(value) if is_dataclass(value) else value
