"""What a request says of its caller."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.errors import OptionError
from headgate.policy.identity import Identifier
from headgate.policy.model import Identity, Source
from tests.support.identity_requests import asked, identity


def test_every_source_has_a_value_or_none() -> None:
    found = Identifier(Identity()).find(asked(x_tenant_id="acme"))
    assert dict(found) == {"api_key": None, "user_id": None, "tenant": "acme", "tier": None}
    assert len(found) == 4


def test_an_unknown_name_is_a_key_error() -> None:
    found = Identifier(Identity()).find(asked())
    with pytest.raises(KeyError):
        found["nobody"]
    assert found.get("nobody") is None


def test_nothing_of_a_caller_is_in_the_repr() -> None:
    assert "hush" not in repr(Identifier(Identity()).find(asked(x_api_key="hush")))


@pytest.mark.parametrize("value", ["", " ", "\t \t"])
def test_an_empty_header_is_not_there(value: str) -> None:
    assert Identifier(Identity()).find(asked(x_tenant_id=value))["tenant"] is None


def test_blanks_around_a_header_are_no_part_of_it_and_its_case_is() -> None:
    assert Identifier(Identity()).find(asked(X_TENANT_ID=" \tAcme Inc "))["tenant"] == "Acme Inc"


def test_of_several_lines_the_first_counts() -> None:
    request = Request(headers=(("x-tenant-id", "one"), ("X-Tenant-Id", "two")))
    assert Identifier(Identity()).find(request)["tenant"] == "one"


def test_authorization_is_the_whole_value() -> None:
    identifier = Identifier(identity(api_key=Source(header="authorization", secret=True)))
    assert identifier.find(asked(authorization="Bearer x"))["api_key"] == "Bearer x"


def test_an_attribute_is_what_the_application_knows() -> None:
    identifier = Identifier(identity(user_id=Source(attribute="user")))
    assert identifier.find(Request(attributes={"user": "7"}))["user_id"] == "7"
    assert identifier.find(Request(attributes={"user": ""}))["user_id"] is None
    assert identifier.find(Request())["user_id"] is None


def test_a_default_stands_for_what_is_missing() -> None:
    identifier = Identifier(identity(tier=Source(header="x-tier", default="free")))
    assert identifier.find(asked())["tier"] == "free"
    assert identifier.find(asked(x_tier="paid"))["tier"] == "paid"


LOOKUP = Source(lookup="api_key", values={"key-1": "paid"}, default="free")


@pytest.mark.parametrize(
    ("request_", "tier"),
    [(asked(x_api_key="key-1"), "paid"), (asked(x_api_key="key-2"), "free"), (asked(), "free")],
)
def test_a_tier_is_looked_up_from_the_key(request_: Request, tier: str) -> None:
    assert Identifier(identity(tier=LOOKUP)).find(request_)["tier"] == tier


def test_a_lookup_may_lead_to_a_lookup() -> None:
    price = Source(lookup="tier", values={"paid": "9", "free": "0"})
    found = Identifier(identity(tier=LOOKUP, price=price)).find(asked(x_api_key="key-1"))
    assert found["price"] == "9"


def test_a_lookup_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"identity\.tier looks up 'key', which is no source"):
        Identifier(identity(tier=Source(lookup="key")))


def test_a_lookup_that_leads_to_itself_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"identity\.b looks itself up: a -> b"):
        Identifier(identity(a=Source(lookup="b"), b=Source(lookup="a")))


def test_the_address_is_found_too() -> None:
    found = Identifier(Identity()).find(Request(peer="[2001:db8::1]:5000"))
    assert str(found.address) == "2001:db8::1"
    assert found.ip == "2001:db8::/64"
    assert Identifier(Identity()).find(Request()).ip == "unknown"
