"""The members are asked in turn, each within its share of the deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd.client import AUTHENTICATE, RANGE, Client
from headgate.control.etcd.errors import EtcdError, Kind
from headgate.control.etcd.url import parse_etcd_url

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER: dict[str, Any] = {"header": {}}


class FakeEndpoint:
    """A member that answers with what it is told, and at last with ANSWER."""

    def __init__(self, place: str, *faults: Kind) -> None:
        self.place = place
        self.faults = list(faults)
        self.asked: list[tuple[str, float]] = []
        self.tokens: list[str | None] = []
        self.logins = 0
        self.login_faults: list[EtcdError] = []

    def ask(self, path: str, body: Any, *, within: float, headers: Mapping[str, str]) -> Any:
        if path == AUTHENTICATE:
            self.logins += 1
            if self.login_faults:
                raise self.login_faults.pop(0)
            return {"token": f"token-{self.logins}"}
        self.asked.append((path, within))
        self.tokens.append(headers.get("Authorization"))
        if self.faults:
            raise EtcdError(self.place, self.faults.pop(0))
        return ANSWER


def client(*endpoints: FakeEndpoint, options: str = "timeout=9", user: str = "") -> Client:
    places = ",".join(f"{endpoint.place}:1" for endpoint in endpoints)
    made = Client(parse_etcd_url(f"etcd://{user}{places}?{options}"))
    made._endpoints = list(endpoints)  # type: ignore[arg-type]
    return made


def ask(one: Client) -> Any:
    return one.ask(RANGE, {})


class TestTurns:
    @pytest.mark.parametrize("fault", ["unreachable", "timeout", "no_leader", "busy"])
    def test_the_next_member_is_asked_and_then_stayed_with(self, fault: Kind) -> None:
        one, two = FakeEndpoint("one", fault), FakeEndpoint("two")
        asking = client(one, two)
        assert ask(asking) is ANSWER
        assert ask(asking) is ANSWER
        assert (len(one.asked), len(two.asked)) == (1, 2)

    @pytest.mark.parametrize(
        "fault", ["login", "denied", "too_large", "full", "rejected", "closed"]
    )
    def test_what_the_next_one_would_say_too_is_raised(self, fault: Kind) -> None:
        one, two = FakeEndpoint("one", fault), FakeEndpoint("two")
        with pytest.raises(EtcdError) as caught:
            ask(client(one, two))
        assert caught.value.kind == fault
        assert not two.asked

    def test_all_down_is_said_after_one_round(self) -> None:
        members = [FakeEndpoint(name, "unreachable", "unreachable") for name in ("one", "two")]
        with pytest.raises(EtcdError, match="etcd at two cannot be reached"):
            ask(client(*members))
        assert [len(member.asked) for member in members] == [1, 1]

    def test_who_insists_is_not_told_so_before_the_time_is_over(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headgate.control.etcd.client._PAUSE", 0.0)
        one = FakeEndpoint("one", "unreachable", "timeout", "unreachable")
        assert client(one).ask(RANGE, {}, insists=True) is ANSWER
        assert len(one.asked) == 4

    def test_without_a_leader_they_are_asked_until_there_is_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headgate.control.etcd.client._PAUSE", 0.0)
        one = FakeEndpoint("one", "no_leader", "no_leader")
        two = FakeEndpoint("two", "unreachable", "no_leader")
        assert ask(client(one, two)) is ANSWER
        assert (len(one.asked), len(two.asked)) == (3, 2)

    def test_without_a_leader_for_long_it_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headgate.control.etcd.client._PAUSE", 3600.0)
        one = FakeEndpoint("one", "no_leader", "no_leader")
        with pytest.raises(EtcdError, match="no leader"):
            ask(client(one, options="timeout=60"))  # less than a pause
        assert len(one.asked) == 1

    def test_each_has_a_share_of_the_time_and_the_last_one_all_that_is_left(self) -> None:
        members = [FakeEndpoint("one", "timeout"), FakeEndpoint("two", "timeout")]
        last = FakeEndpoint("three")
        ask(client(*members, last, options="timeout=600"))
        one, two, three = (member.asked[0][1] for member in (*members, last))
        # The fakes take no time, so what the first ones leave is there for the others.
        assert one <= 200 < two <= 300 < three <= 600

    def test_a_fleet_spreads_over_the_members(self) -> None:
        url = parse_etcd_url("etcd://one,two,three")
        firsts = {Client(url)._endpoints[0].place for _ in range(200)}
        assert len(firsts) == 3


class TestCertainty:
    def test_a_refusal_is_certain_if_nothing_was_asked_before(self) -> None:
        with pytest.raises(EtcdError) as caught:
            ask(client(FakeEndpoint("one", "denied")))
        assert caught.value.is_certain

    def test_a_refusal_after_a_lost_answer_is_not(self) -> None:
        with pytest.raises(EtcdError) as caught:
            ask(client(FakeEndpoint("one", "timeout"), FakeEndpoint("two", "denied")))
        assert caught.value.kind == "denied"
        assert not caught.value.is_certain

    def test_a_login_that_times_out_has_changed_nothing(self) -> None:
        one = FakeEndpoint("one")
        one.login_faults.append(EtcdError("one", "timeout"))
        with pytest.raises(EtcdError) as caught:
            ask(client(one, user="ada:secret@"))
        assert caught.value.is_certain


class TestLogin:
    def test_it_is_made_once(self) -> None:
        one = FakeEndpoint("one")
        asking = client(one, user="ada:secret@")
        ask(asking)
        ask(asking)
        assert one.logins == 1
        assert one.tokens == ["token-1", "token-1"]

    def test_it_is_made_again_when_it_has_run_out(self) -> None:
        one = FakeEndpoint("one", "token")
        assert ask(client(one, user="ada:secret@")) is ANSWER
        assert one.tokens == ["token-1", "token-2"]

    def test_it_is_not_made_again_and_again(self) -> None:
        one = FakeEndpoint("one", *["token"] * 10)  # type: ignore[arg-type]
        with pytest.raises(EtcdError, match="no longer accepts the login"):
            ask(client(one, user="ada:secret@"))
        assert one.logins == 2

    def test_without_a_user_there_is_none(self) -> None:
        one = FakeEndpoint("one", "token")
        with pytest.raises(EtcdError, match="no longer accepts the login"):
            ask(client(one))
        assert one.logins == 0

    def test_where_nobody_logs_in_there_is_no_token(self) -> None:
        one = FakeEndpoint("one")
        one.login_faults.append(
            EtcdError("one", "rejected", "etcdserver: authentication is not enabled")
        )
        assert ask(client(one, user="ada:secret@")) is ANSWER
        assert one.tokens == [None]
