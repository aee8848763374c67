"""Models: dataclasses with a form in a file, and everything derived from their declarations.

`@table(...)` gives a dataclass its form: the names of its fields, what is required, what may stand
together. From the one declaration follow reading (`read`), JSON Schema (`json_schema`) and plain
data (`to_data`).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints

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
    *synonyms* words that people use for a field. Exactly one of *one_of* must be given; *shape*
    checks what else stands together. *finish* makes the final value; with *makes* that is an
    instance of another class, whose attributes have the same names. *schema* is added to the JSON
    Schema. *always* are written even if they are the default; *order* are the names that come
    first. *write* changes the plain data that is made of a value.
    """

    what: str
    names: Mapping[str, str] = field(default_factory=dict)
    synonyms: Mapping[str, str] = field(default_factory=dict)
    one_of: tuple[str, ...] = ()
    shape: Callable[[Table], Iterable[FieldError]] = lambda _: ()
    finish: Callable[..., Any] | None = None
    write: Callable[[Any, dict[str, Any]], None] = lambda _made, _data: None
    makes: type[Any] | None = None
    schema: Callable[[], Schema] | Schema = field(default_factory=dict)
    always: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


_FORMS: Final[dict[type[Any], Form]] = {}
_MODELS: Final[dict[type[Any], type[Any]]] = {}
"""The model of each class of values."""


def table(what: str, **options: Any) -> Callable[[type[T]], type[T]]:
    """A dataclass with a form in a file; see `Form`."""

    def declare(kind: type[T]) -> type[T]:
        form = _FORMS[kind] = Form(what, **options)
        _MODELS[form.makes or kind] = kind
        return kind

    return declare


@dataclass(frozen=True, slots=True)
class Known:
    """The fields of a model by their names in a file."""

    fields: Mapping[str, FieldType]
    attributes: Mapping[str, str]
    defaults: Mapping[str, Any]
    """The default of each field that has one."""
    required: frozenset[str]
    names: tuple[str, ...]


@_cached
def known_fields(kind: Any) -> Known:
    """The fields of the model *kind*, a class."""
    form = _FORMS[kind]
    hints = get_type_hints(kind, include_extras=True)
    declared = {form.names.get(one.name, one.name): one for one in fields(kind)}
    defaults = {
        name: one.default if one.default_factory is MISSING else one.default_factory()
        for name, one in declared.items()
        if one.default is not MISSING or one.default_factory is not MISSING
    }
    required = frozenset(declared.keys() - defaults.keys())
    found = {name: _type_of(hints[one.name]) for name, one in declared.items()}
    # Problems of data without lines are reported in this order.
    by_need = sorted(found, key=lambda name: name not in required)
    names = dict.fromkeys((*(name for name in form.order if name in found), *found))
    return Known(
        {name: found[name] for name in by_need},
        {name: one.name for name, one in declared.items()},
        defaults,
        required,
        tuple(names),
    )


def _type_of(hint: Any) -> FieldType:
    for part in (*getattr(hint, "__metadata__", ()), hint, *get_args(hint)):
        if isinstance(part, FieldType):
            return part
        if isinstance(part, type) and part in _FORMS:
            return model_field(part)
    raise TypeError(f"the declaration {hint} names no type of fields")


def read(kind: type[T], node: Node, context: object = None) -> T:
    """The value that the model *kind* makes of *node*. Raises `InvalidValueError` with all errors.

    *context* is for types of fields that depend on more than the document.
    """
    form, known = _FORMS[kind], known_fields(kind)
    if not isinstance(node, Table):
        raise expected(node, f"{form.what}: a mapping with {', '.join(known.names)}")
    entries = node.entries
    errors = [*exactly_one(node, *form.one_of), *form.shape(node)]
    stray = {one.path[0] for one in errors if one.is_stray}
    if errors or not known.required <= entries.keys() <= known.fields.keys():
        errors = _checked_names(node, form, known, errors)
    values: dict[str, Any] = {}
    for name, one in known.fields.items():
        if name in entries and name not in stray:
            try:
                child = entries[name]
                values[known.attributes[name]] = (
                    one.read(child) if one.read_in is None else one.read_in(child, node, context)
                )
            except InvalidValueError as error:
                errors += [each.under(name) for each in error.errors]
    if errors:
        raise InvalidValueError(errors)
    if form.finish is not None:
        made: T = form.finish(kind(**values), node, context)
    else:
        made = (form.makes or kind)(**values)
    return made


def exactly_one(node: Table, *names: str, path: tuple[str, ...] = ()) -> Iterator[FieldError]:
    """The error of a mapping that does not have exactly one of the fields *names*, if any."""
    found = [name for name in names if name in node.entries]
    if names and len(found) != 1:
        what = f"found {' and '.join(found)}" if found else "found none"
        message = f"{what}, expected exactly one of {', '.join(names)}"
        yield FieldError(message, path=path, at_parent=bool(path), instead_of=names)


def _checked_names(
    node: Table, form: Form, known: Known, shape: list[FieldError]
) -> list[FieldError]:
    """The errors of unknown and missing fields, and those of *shape* that these do not explain."""
    errors: list[FieldError] = []
    meant: set[str] = set()
    for name in [name for name in node.entries if name not in known.fields][:MAX_PROBLEMS]:
        error = not_among(name, known.names, "unknown field")
        if name in form.synonyms:
            error.hint = did_you_mean(form.synonyms[name])
        meant.update(each for each in known.names if error.hint == did_you_mean(each))
        error.at_key = True
        errors.append(error.under(name))
    for name in known.names:
        if name in known.required and name not in node.entries and name not in meant:
            message = f"missing; expected {known.fields[name].what}"
            errors.append(FieldError(message, path=(name,)))
    return errors + [error for error in shape if not meant & error.instead_of]


def model_field(
    kind: type[Any], *, short: str = "", alone: FieldType | None = None, switch: bool = False
) -> FieldType:
    """The value that the model *kind* makes.

    A value that is not a mapping may stand for it: for its field *short*; as a value of the type
    *alone*; or, with *switch*, true for all defaults and false for None.
    """

    def read_in(node: Node, _table: Table, context: Any) -> Any:
        if isinstance(node, Table):
            return read(kind, node, context)
        if alone is not None:
            return alone.read(node)
        given = Table(node.place)
        if switch:
            if not isinstance(node, Scalar) or node.boolean is None:
                raise expected(node, "true, false or a mapping")
            return read(kind, given, context) if node.boolean else None
        if short:
            given.entries[short] = node
            given.keys[short] = Scalar(short, is_plain=False, place=node.place)
        return read(kind, given if short else node, context)

    def schema() -> Schema:
        other = [_described(kind)["properties"][short]] if short else []
        other += [{"type": "boolean"}] if switch else []
        other += [alone.json_schema()] if alone is not None else []
        return {"anyOf": [*other, reference(kind)]} if other else reference(kind)

    def write(value: Any) -> object:
        if not is_dataclass(value):
            return value
        data = to_data(value)
        return data[short] if short and set(data) <= {short} else data

    return FieldType(_FORMS[kind].what, schema=schema, write=write, read_in=read_in)


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


def _summary(kind: type[Any]) -> str:
    """The first paragraph of the docstring of *kind*, in one line."""
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


def reference(kind: type[Any]) -> Schema:
    """The JSON Schema that stands for the model *kind*."""
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _references(schema: Any) -> Iterator[str]:
    """The names of the models that *schema* refers to."""
    if isinstance(schema, dict):
        yield from [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def json_schema(kind: type[Any]) -> Schema:
    """The JSON Schema of the model *kind*, with a definition for every model that it refers to."""
    models = {model.__name__: model for model in _FORMS}
    found = {kind.__name__: _described(kind)}
    pending = [*found.values()]
    for schema in pending:
        for name in _references(schema):
            if name not in found:
                found[name] = _described(models[name])
                pending.append(found[name])
    top = found.pop(kind.__name__)
    return {"$defs": dict(sorted(found.items())), **top}


def _described(kind: type[Any]) -> Schema:
    """The JSON Schema of *kind* with references to other models."""
    form, known, docs = _FORMS[kind], known_fields(kind), docs_of(kind)
    properties: Schema = {}
    for name in known.names:
        one = {**known.fields[name].json_schema()}
        default = known.defaults.get(name)
        if isinstance(default, str | int | Fraction) and name not in known.required:
            one["default"] = known.fields[name].write(default)
        if name in docs:
            one["description"] = docs[name]
        properties[name] = one
    return {
        "title": form.what,
        "description": _summary(kind),
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": sorted(known.required)} if known.required else {}),
        **({"oneOf": [{"required": [name]} for name in form.one_of]} if form.one_of else {}),
        **(form.schema() if callable(form.schema) else form.schema),
    }


def to_data(made: Any) -> dict[str, Any]:
    """The value *made* as plain data: what a reader of JSON would have made of its file."""
    kind = _MODELS[type(made)]
    form, known = _FORMS[kind], known_fields(kind)
    data: dict[str, Any] = {}
    for name in known.names:
        value = getattr(made, known.attributes[name], None)
        if value is not None and (value != known.defaults.get(name) or name in form.always):
            data[name] = known.fields[name].write(value)
    form.write(made, data)
    return data
