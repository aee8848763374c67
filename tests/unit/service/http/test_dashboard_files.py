"""The files of the dashboard as they are served; what it does is tried in a browser."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from headgate.service.dashboard import NAMES
from tests.support.http_app import app_of, ask

PLACE = files("headgate.service.dashboard")
FOR_PEOPLE = ("accept", "text/html,*/*;q=0.8")


def text_of(name: str) -> str:
    return PLACE.joinpath(name).read_text("utf-8")


def test_a_browser_gets_a_page_that_may_run_the_scripts_beside_it_and_nothing_else() -> None:
    answer = ask(app_of(), "GET", "/", [FOR_PEOPLE])
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    page = answer.body.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", page)


def test_every_file_is_served_under_its_type() -> None:
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in NAMES:
        answer = ask(app_of(), "GET", f"/dashboard/{name}")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.body.decode() == text_of(name)


def test_there_is_no_file_that_is_not_served_and_none_that_others_miss() -> None:
    there = {one.name for one in PLACE.iterdir() if one.name.endswith((".js", ".css", ".svg"))}
    assert there == set(NAMES)
    named = set(re.findall(r'"dashboard/([^"]+)"', text_of("page.html")))
    for name in NAMES:
        if name.endswith(".js"):
            named |= set(re.findall(r'from "\./([^"]+)"', text_of(name)))
    assert named == set(NAMES)


def test_nothing_is_asked_of_anybody_else_and_no_text_becomes_markup() -> None:
    for name in ("page.html", *NAMES):
        text = text_of(name).replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\(|@import", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


@pytest.mark.parametrize("path", ["/", "/dashboard/style.css"])
def test_who_has_a_file_already_does_not_get_it_again(path: str) -> None:
    first = ask(app_of(), "GET", path, [FOR_PEOPLE])
    tag = first.headers["etag"]
    again = ask(app_of(), "GET", path, [FOR_PEOPLE, ("if-none-match", f'W/"x", {tag}')])
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == tag
    assert ask(app_of(), "GET", path, [FOR_PEOPLE, ("if-none-match", '"x"')]).status == 200


def test_other_names_are_not_there() -> None:
    for name in ("page.html", "files.py", "../overview.py", "", "main.js/"):
        assert ask(app_of(), "GET", f"/dashboard/{name}").status == 404


def test_the_scripts_are_short_enough_to_be_read() -> None:
    for name in NAMES:
        assert text_of(name).count("\n") < 400
