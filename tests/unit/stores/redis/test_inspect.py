"""Names are read back as they were written, and a search finds what it is for."""

import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headgate import FixedWindow
from headgate.stores.base import group_name
from headgate.stores.redis.inspect import Search, State, escaped, find_counters
from headgate.stores.redis.naming import DEFAULT_NAMESPACE, Names, parse_name

NASTY = st.text(
    st.sampled_from("a1:#=/@!+~{}%*?[]\\^- é\0\n") | st.characters(codec="utf-8"), min_size=1
)
SHORT = NASTY.filter(lambda key: len(key.encode()) <= 200)
KEYS = NASTY | st.text(min_size=1) | st.text("x", min_size=190, max_size=220)
NAMESPACES = NASTY | st.text()
MARKS = st.sampled_from(["", "+", "~"])


class TestParseName:
    @given(NAMESPACES, st.integers(0, 999), KEYS, MARKS, st.booleans())
    @example(DEFAULT_NAMESPACE, 0, "user:42", "", False)
    @example("", 0, "user:42", "", False)
    @example("\ud800~", 0, "\ud800", "", False)
    @example("a:b#1", 10, "{x}:y", "+", True)
    def test_reads_back_a_place_in_a_stack(
        self, namespace: str, place: int, key: str, mark: str, has_tags: bool
    ) -> None:
        names = Names(has_tags=has_tags)
        parsed = parse_name(names.counter(group_name(namespace, place), key, mark))
        assert parsed is not None
        assert (parsed.namespace, parsed.place, parsed.name) == (namespace, place, None)
        assert (parsed.beside, bool(parsed.tag)) == (mark, has_tags)
        is_long = len(key.encode("utf-8", "surrogatepass")) > 200
        assert parsed.is_hashed == is_long
        assert is_long or parsed.key == key

    @given(NAMESPACES, NASTY, KEYS, MARKS, st.booleans())
    def test_reads_back_a_name(
        self, namespace: str, name: str, key: str, mark: str, has_tags: bool
    ) -> None:
        group = group_name(namespace, name)
        parsed = parse_name(Names(has_tags=has_tags).counter(group, key, mark))
        assert parsed is not None
        assert (parsed.namespace, parsed.name, parsed.place) == (namespace, name, None)
        assert parsed.group == group

    @given(NAMESPACES, KEYS, st.sampled_from("^<>"), st.booleans())
    def test_takes_no_ledger_totals_or_pot_for_a_counter(
        self, namespace: str, key: str, mark: str, has_tags: bool
    ) -> None:
        name = Names(has_tags=has_tags).counter(group_name(namespace, 0), key, mark)
        assert parse_name(name) is None

    @given(NAMESPACES, KEYS, st.booleans())
    def test_reads_back_a_limit(self, namespace: str, key: str, has_tags: bool) -> None:
        limit = FixedWindow(100, 90)
        group = group_name(namespace, limit)
        parsed = parse_name(Names(has_tags=has_tags).counter(group, key))
        assert parsed is not None
        assert (parsed.namespace, parsed.limit) == (namespace, "100/90s fixed_window")
        assert parsed.group == group

    @given(NASTY, KEYS, MARKS)
    def test_reads_back_any_other_group(self, group: str, key: str, mark: str) -> None:
        assume(not re.match(r"\d+[:=/]", group))
        parsed = parse_name(Names(has_tags=False).counter(group, key, mark))
        assert parsed is not None
        assert (parsed.namespace, parsed.other, parsed.group) == (None, group, group)

    def test_a_namespace_that_ends_in_a_tilde_is_not_taken_for_slots(self) -> None:
        parsed = parse_name(Names(has_tags=False).counter(group_name("a~", 0), "key"))
        assert parsed is not None
        assert (parsed.namespace, parsed.beside) == ("a~", "")

    @pytest.mark.parametrize(
        "name",
        [
            b"plain",
            b"shop:",  # a key is never empty
            b"headgate:user",  # the usual namespace is left out of names
            b"shop#0:user",  # and so is the first place
            b"shop#x:user",
            b"my shop/:user",
            b"sh\xc3\xb6p:user",  # would be percent-encoded
            b"sh%zzop:user",
            b"sh%ffop:user",
            b"@:user",
            b"shop=%:user",
            b"$2shop:user",  # of a later version
            b"shop:\xff",  # no key is encoded like this
            b"shop!:user",  # no digest
            b"shop:" + b"x" * 201,  # would be a digest
            b"{0.0}shop:user",  # not the tag of this key
            b"{tag}shop:user",
            b"{tag}shop!:0123456789abcdef0123456789abcdef",
            b"",
        ],
    )
    def test_a_name_that_headgate_does_not_give_is_somebody_elses(self, name: bytes) -> None:
        assert parse_name(name) is None

    @given(st.binary())
    def test_any_bytes_are_a_name_or_not(self, name: bytes) -> None:
        parsed = parse_name(name)
        if parsed is not None and not parsed.is_hashed:
            marks = parsed.beside
            assert Names(has_tags=bool(parsed.tag)).counter(parsed.group, parsed.key, marks) == name


class Shelf:
    """A primary with these names on it, which takes a step for each of them, twice."""

    def __init__(self, *names: bytes, has_tags: bool = False) -> None:
        self.names = names
        self.has_tags = has_tags
        self.was_read: list[bytes] = []

    def scan(self, match: bytes) -> Iterator[Sequence[bytes]]:
        for name in (*self.names, *self.names):
            yield [name] if _matches(match, name) else []

    def read(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, State, int]]:
        self.was_read += names
        for name in names:
            yield name, State("paced", "1/s", None, 1, 1), 1


def _matches(pattern: bytes, name: bytes) -> bool:
    """What Redis does with a pattern in which the stars are the only wildcards."""
    parts = re.findall(rb"\\.|\*|[^\\*]", pattern, re.DOTALL)
    expression = b"".join(b".*" if one == b"*" else re.escape(one[-1:]) for one in parts)
    return re.fullmatch(expression, name, re.DOTALL) is not None


def found(search: Search, *shelves: Shelf) -> list[tuple[str | None, str]]:
    return [(one.name.namespace, one.name.key) for one in find_counters(shelves, search)]


def name_of(key: str, namespace: str = "shop", mark: str = "", *, has_tags: bool = False) -> bytes:
    return Names(has_tags=has_tags).counter(group_name(namespace, 0), key, mark)


class TestFindCounters:
    @given(st.lists(SHORT, min_size=1, unique=True), NAMESPACES, st.booleans())
    def test_a_key_is_found_and_no_other(
        self, keys: list[str], namespace: str, has_tags: bool
    ) -> None:
        names = [name_of(key, namespace, has_tags=has_tags) for key in keys]
        for search in (Search(key=keys[0]), Search(namespace, key=keys[0])):
            assert found(search, Shelf(*names, has_tags=has_tags)) == [(namespace, keys[0])]

    @given(SHORT, st.text("ab*?[]!-\\é", max_size=6))
    @example("bé", "b?")
    @example("[", "[")
    @example("*", "[*]")
    def test_a_pattern_finds_what_it_would_in_a_shell(self, key: str, pattern: str) -> None:
        from fnmatch import fnmatchcase

        expected = [("shop", key)] if fnmatchcase(key, pattern) else []
        assert found(Search(pattern=pattern), Shelf(name_of(key))) == expected

    def test_a_long_key_is_found_in_full_and_by_its_digest(self) -> None:
        shelf = Shelf(name_of("x" * 300), name_of("x" * 301))
        [(_, digest)] = found(Search(key="x" * 300), shelf)
        assert re.fullmatch("[0-9a-f]{32}", digest)
        assert found(Search(key=digest), shelf) == [("shop", digest)]

    def test_a_counter_that_is_on_two_nodes_is_told_once(self) -> None:
        names = [name_of("a", has_tags=True), name_of("b", has_tags=True)]
        shelves = Shelf(*names, has_tags=True), Shelf(*names, has_tags=True)
        assert len(found(Search(), *shelves)) == 2

    def test_a_namespace_is_not_the_beginning_of_another(self) -> None:
        shelf = Shelf(name_of("a", "shop"), name_of("a", "shopping"), name_of("a", "headgate"))
        assert found(Search("shop"), shelf) == [("shop", "a")]
        assert found(Search("headgate"), shelf) == [("headgate", "a")]

    def test_lists_beside_logs_and_foreign_names_are_not_even_read(self) -> None:
        shelf = Shelf(name_of("a", mark="+"), b"somebody", b"{0.0}else:b", name_of("c", mark="~"))
        assert found(Search(), shelf) == [("shop", "c")]
        assert shelf.was_read == [name_of("c", mark="~")]

    def test_names_with_tags_belong_in_clusters_and_only_there(self) -> None:
        names = name_of("a"), name_of("b", has_tags=True)
        assert found(Search(), Shelf(*names)) == [("shop", "a")]
        assert found(Search(), Shelf(*names, has_tags=True)) == [("shop", "b")]

    def test_no_more_is_read_than_is_asked_for(self) -> None:
        shelf = Shelf(*(name_of(f"user:{n}") for n in range(10)))
        counters = find_counters([shelf], Search())
        assert [next(counters).name.key for _ in range(3)] == ["user:0", "user:1", "user:2"]
        assert len(shelf.was_read) == 3


@given(st.binary())
def test_an_escaped_text_matches_itself(text: bytes) -> None:
    assert _matches(escaped(text), text)
    assert not set(re.sub(rb"\\.", b"", escaped(text), flags=re.DOTALL)) & set(b"*?[]^\\")
