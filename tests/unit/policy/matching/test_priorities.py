"""Which class a request is of."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.matcher import Classifier
from headgate.policy.model import Match, PriorityClass

CLASSES = (
    PriorityClass("critical", Match(endpoints=("/pay/**",), methods=("POST",))),
    PriorityClass("default", Match(endpoints=("/pay/**",))),
    PriorityClass("sheddable", Match(tiers=("free",))),
    PriorityClass("critical", Match(headers=(("x-urgent", None),))),
)


def of(classifier: Classifier, method: str, path: str, tier: str | None = None, **more: str) -> str:
    lines = tuple((name.replace("_", "-"), value) for name, value in more.items())
    return classifier.of(Request(method, path, headers=lines), {"tier": tier})


def test_the_first_that_fits_counts() -> None:
    found = Classifier(CLASSES)
    assert of(found, "POST", "/pay/1", "free") == "critical"
    assert of(found, "GET", "/pay/1", "free") == "default"
    assert of(found, "GET", "/other", "free", x_urgent="1") == "sheddable"
    assert of(found, "GET", "/other", "paid", x_urgent="1") == "critical"


def test_what_fits_nothing_is_default() -> None:
    assert of(Classifier(CLASSES), "GET", "/other", "paid") == "default"
    assert of(Classifier(()), "POST", "/pay/1") == "default"


@pytest.mark.parametrize("path", ["/PAY/1", "/pay/1/", "//pay//1", "/%70ay/1"])
def test_what_every_server_reads_alike_is_of_one_class(path: str) -> None:
    assert of(Classifier(CLASSES), "POST", path) == "critical"


@pytest.mark.parametrize(
    "path", ["/x/../pay/1", "/pay/../x", "/pay/..%2fx", "/x/..;/pay/1", "/pay%2f1", "/pay/..\\x"]
)
def test_nobody_gets_ahead_by_how_a_path_is_spelt(path: str) -> None:
    assert of(Classifier(CLASSES), "POST", path) == "default"


def test_nobody_escapes_by_how_a_path_is_spelt() -> None:
    found = Classifier((PriorityClass("sheddable", Match(endpoints=("/search/**",))),))
    for path in ("/x/../search/1", "/search/../x", "/search%2f1"):
        assert of(found, "GET", path) == "sheddable"


def test_it_says_the_same_the_second_time() -> None:
    found = Classifier(CLASSES)
    for _ in range(2):
        assert of(found, "POST", "/pay/1") == "critical"
        assert of(found, "POST", "/pay/../x") == "default"


def test_a_request_meets_only_classes_that_may_fit() -> None:
    """A class for a path of its own is not tried: its conditions are not looked at."""
    tried: list[str] = []

    class Watched(dict[str, "str | None"]):
        def get(self, name: str, default: object = None) -> str | None:
            tried.append(name)
            return None

    others = (
        PriorityClass("critical", Match(endpoints=(f"/p{n}",), tiers=("a",))) for n in range(999)
    )
    found = Classifier((*others, PriorityClass("sheddable", Match(endpoints=("/x",)))))
    assert found.of(Request(path="/x"), Watched()) == "sheddable"
    assert tried == []
