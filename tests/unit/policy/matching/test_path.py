from __future__ import annotations

import pytest

from headgate.policy.path import LONG, MOST_SEGMENTS, normalised_path, readings

SPELLINGS_OF_LOGIN = (
    "/login",
    "//login",
    "///login//",
    "/login/",
    "login",
    "/LOGIN",
    "/Login",
    "/%6cogin",
    "/%6Cogin",
    "/%4Cogin",
    "/%6c%6f%67%69%6e",
    "/a/../login",
    "/a/%2e%2E/login",
    "/a/..;x/login",
    "/a//../login",
    "/../../login",
    "/./login",
    "/%2e/login",
    "/login/.",
    "/login/x/..",
    "/login;x",
    "/login;x=1",
    "/login;x=1;y=2",
    "/login%3bx",
    "/;x/login",
    "/login%2f",
    "/login%2F%2f",
    "/login\\",
    "\\login",
    "/a\\..\\login",
    "/login%5c",
    "/login%5C..%5Clogin",
    "/login%00",
    "/login%00.html",
    "/login\0",
    "/login%0a",
    "/log%09in",
    "/login\x1f",
    "/login%20",
    "/ login",
    "/login%C2%A0",
    "/login%a0",
    "/login\x85",
    "/login%85",
    "/login.",
    "/login. .",
    "/login?next=/",
    "/login#top",
    "/login%3Fnext",
    "/login%23top",
    "/%c1%acogin",
    "/a/%c0%ae%c0%ae%c0%aflogin",
    "http://host/login",
    "HTTPS://user@host:8443/login?x",
    "http://[::1]:80//login",
)


@pytest.mark.parametrize("raw", SPELLINGS_OF_LOGIN)
def test_all_of_them_spell_login(raw: str) -> None:
    assert normalised_path(raw) == "/login"
    assert readings(raw)[0] == ("login",)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        ("/..", "/"),
        ("http://host", "/"),
        ("http://host?x", "/"),
        ("?x", "/"),
        ("*", "/*"),
        ("/login;x/y", "/login/y"),
        ("/login%2fy", "/login/y"),
        ("/.well-known/x", "/.well-known/x"),
        ("/a.b", "/a.b"),
        ("/...", "/..."),
        ("/a b", "/a b"),
        ("/a%20b", "/a b"),
        ("/a+b", "/a+b"),
        ("/http://host/x", "/http:/host/x"),
    ],
)
def test_what_else_there_is_has_one_spelling_too(raw: str, path: str) -> None:
    assert normalised_path(raw) == path


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("/%256cogin", "/%256cogin"),
        ("/%25", "/%25"),
        ("/100%", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/%6", "/%256"),
        ("/%u006cogin", "/%25u006cogin"),
    ],
)
def test_a_path_is_decoded_once(raw: str, path: str) -> None:
    assert normalised_path(raw) == path


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("/caf%C3%A9", "/café"),
        ("/café", "/café"),
        ("/cafe%CC%81", "/cafe\u0301"),
        ("/%C3%89", "/É"),
        ("/%ff", "/%FF"),
        ("/\udcff", "/%FF"),
        ("/%fe", "/%FE"),
        ("/%e9", "/%E9"),
        ("/\ud800", "/%ED%A0%80"),
        ("/%ed%a0%80", "/%ED%A0%80"),
    ],
)
def test_letters_and_bytes_beyond_ascii_stay_apart(raw: str, path: str) -> None:
    assert normalised_path(raw) == path


def test_dropping_a_control_character_does_not_make_a_path_that_reads_differently() -> None:
    assert normalised_path("/%c3%01%a9") == "/é"
    assert normalised_path("/%c1%01%ac") == "/l"


@pytest.mark.parametrize("raw", ["/", "/login", "/a/b.c", "/LOGIN", "/%6cogin", "/caf%C3%A9", "//"])
def test_an_ordinary_path_is_read_in_one_way(raw: str) -> None:
    assert len(readings(raw)) == 1


@pytest.mark.parametrize(
    ("raw", "others"),
    [
        ("/files/../x", {("files", "..", "x")}),
        ("/a//../x", {("a", "x"), ("a", "..", "x")}),
        ("/item/a%2fb", {("item", "a%2Fb")}),
        ("/item/a\\b", {("item", "a\\b")}),
        ("/item/;x", {("item", ";x")}),
        ("/item/%20", {("item", " ")}),
        ("/item/%01", {("item", "\1")}),
        ("/item/%00", {("item", "\0")}),
        ("/item/%3fx", {("item", "?x")}),
        ("/item/#x", {("item", "#x")}),
        ("/a%23/../b;x", {("b;x",), ("a#", "..", "b;x"), ("b",)}),
    ],
)
def test_what_servers_disagree_on_is_read_in_each_way(
    raw: str, others: set[tuple[str, ...]]
) -> None:
    assert set(readings(raw)[1:]) == others


def test_a_long_path_is_read_in_four_ways_at_most() -> None:
    noise = "/a//../b;c%2fd\\e/."
    assert len(readings(noise)) > 4
    assert len(readings(noise * LONG)) == 4


def test_of_many_segments_both_ends_are_looked_at() -> None:
    half = MOST_SEGMENTS // 2
    (way,) = readings("/" + "/".join(str(number) for number in range(10_000)))
    assert way[:half] == tuple(map(str, range(half)))
    assert way[half:] == tuple(map(str, range(10_000 - half, 10_000)))


@pytest.mark.parametrize("size", [10, LONG, 4 * LONG])
@pytest.mark.parametrize(
    ("piece", "spelt"),
    [
        *(("%", "%25"), ("%2", "%252"), ("%zz", "%25zz"), ("%25", "%25"), ("%ff%FE", "%FF%FE")),
        *(("%61%62", "ab"), ("%C3%A9", "é"), ("%41%", "a%25"), ("%c1%ac", "l"), ("%01a", "a")),
    ],
)
def test_escapes_in_a_row_are_undone_one_by_one(piece: str, spelt: str, size: int) -> None:
    assert normalised_path(f"/{piece * size}") == f"/{spelt * size}"
    assert readings(f"/{piece * size}/x")[0] == (spelt * size, "x")


@pytest.mark.parametrize("piece", ["%/", "a%2f", "%20/", ".;/", "%ff/", "a/../"])
def test_of_very_many_segments_the_same_are_looked_at_in_every_spelling(piece: str) -> None:
    for one in readings("/" + piece * 4 * MOST_SEGMENTS):
        assert len(one) <= MOST_SEGMENTS
        assert all("/" not in segment for segment in one)
