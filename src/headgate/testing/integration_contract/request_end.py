"""The contract of the end of a request: charges, reports, slots, heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.limits import Concurrency
from headgate.testing.capabilities import needs
from headgate.testing.integration_contract.app import Route
from headgate.testing.integration_contract.subject import IntegrationUnderTest, remaining
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.testing.integration_contract.app import Behaviour

_ONE: Final = Concurrency(1, ttl=600)
_RULE = {"id": "after", "key_by": "ip", "limit": "100/hour"}
_BY_HEADER = {"version": 1, "rules": [{**_RULE, "cost": {"after": {"header": "x-tokens"}}}]}
_BY_BYTES = {"version": 1, "rules": [{**_RULE, "cost": {"after": {"bytes": True}}}]}
_TOKENS = {"limits": "100/hour", "name": "tokens", "cost": 10, "is_estimate": True}


def _has_failed(response: Any) -> bool:
    return bool(response.status_code == 401)


def _has_broken(response: Any) -> bool:
    return response.error is not None or response.status_code >= 500


class ChargeContract(IntegrationUnderTest):
    """Amounts that are known at the end."""

    def test_charge_when_charges_only_the_responses_that_it_names(self) -> None:
        self.start(Route(behaviour="status"), limits="2/hour", charge_when=_has_failed)
        statuses = [self.ask(x_status=one).status for one in ("200", "200", "401", "200", "401")]
        assert statuses == [200, 200, 401, 200, 401]
        assert self.ask(x_status="200").status == 429

    def test_charge_when_holds_the_cost_until_the_response(self) -> None:
        self.start(Route(behaviour="waits"), limits="1/hour", charge_when=_has_failed)
        waiting = self.open()
        self.script.entered.wait_for(1)
        assert self.ask().status == 429
        self.script.gate.open()
        assert waiting.finish().status == 200
        assert self.ask().status == 200

    def test_charge_when_sees_an_error_of_the_app_as_a_500(self) -> None:
        self.start(Route(behaviour="fails"), limits="1/hour", charge_when=_has_broken)
        assert self.statuses(2) == [500, 429]

    @needs("has_route_limits")
    def test_charge_when_of_a_route_charges_only_the_responses_that_it_names(self) -> None:
        own = {"limits": "1/hour", "charge_when": _has_failed}
        self.start(Route(behaviour="status", limit=own))
        statuses = [self.ask(x_status=one).status for one in ("200", "200", "401", "200")]
        assert statuses == [200, 200, 401, 429]

    def test_a_cost_in_a_header_of_the_response_is_charged_afterwards(self) -> None:
        self.start(policy=_BY_HEADER)
        assert self.left(x_tokens="30") == {"after": 99}
        assert self.left() == {"after": 69}

    def test_the_bytes_of_a_response_are_charged_afterwards(self) -> None:
        self.start(Route(), Route(path="/stream", behaviour="stream"), policy=_BY_BYTES)
        self.script.gate.open()
        assert self.ask("/stream").body == b"one,two"
        assert self.left() == {"after": 92}

    def test_a_denied_request_is_not_charged_afterwards(self) -> None:
        self.start(policy=_BY_HEADER)
        self.ask(x_tokens="100")
        assert self.statuses(3, x_tokens="50") == [429, 429, 429]
        self.clock.advance(3600)
        assert self.left() == {"after": 99}

    @needs("has_route_limits")
    def test_the_reported_cost_takes_the_place_of_the_estimate(self) -> None:
        self.start(Route(behaviour="reports", limit=_TOKENS))
        assert self.left(x_used="3") == {"tokens": 90}
        assert self.left() == {"tokens": 87}
        assert self.left() == {"tokens": 77}

    @needs("has_route_limits")
    def test_a_client_that_has_the_whole_response_finds_it_settled(self) -> None:
        self.script.gate.open()
        self.start(Route(behaviour="stream", limit=_TOKENS), store=self.remote)
        for left in (90, 87, 84, 81):
            exchange = self.open(x_used="3")
            assert remaining(exchange.start()) == {"tokens": left}
            assert exchange.finish_body() == b"one,two"

    @needs("has_route_limits")
    def test_a_client_that_disconnects_is_charged_what_was_reported(self) -> None:
        self.start(Route(behaviour="stream", limit=_TOKENS))
        exchange = self.open(x_used="3")
        assert remaining(exchange.start()) == {"tokens": 90}
        assert exchange.read() == b"one,"
        exchange.disconnect()
        self.script.gate.open()
        exchange.wait()
        assert self.left(x_used="0") == {"tokens": 87}


class SlotContract(IntegrationUnderTest):
    """Limits of how many requests there are at once."""

    def test_a_slot_is_taken_while_the_app_works_and_free_afterwards(self) -> None:
        self.start(Route(behaviour="waits"), limits=_ONE)
        waiting = self.open()
        self.script.entered.wait_for(1)
        assert self.ask().status == 429
        self.script.gate.open()
        assert waiting.finish().status == 200
        assert self.statuses(2) == [200, 200]

    def test_a_slot_is_taken_for_the_length_of_a_stream(self) -> None:
        self.start(Route(), Route(path="/stream", behaviour="stream"), limits=_ONE)
        streaming = self.open("/stream")
        assert streaming.start().status == 200
        assert streaming.read() == b"one,"
        assert self.ask().status == 429
        self.script.gate.open()
        assert streaming.finish_body() == b"two"
        assert self.ask().status == 200

    def test_a_slot_is_free_after_an_error_of_the_app(self) -> None:
        self.start(Route(behaviour="fails"), limits=_ONE)
        assert self.statuses(3) == [500, 500, 500]

    def test_a_slot_is_free_after_an_error_of_the_framework(self) -> None:
        self.start(Route(behaviour="raises"), limits=_ONE)
        assert self.statuses(3) == [403, 403, 403]

    def test_a_slot_is_free_after_a_stream_that_breaks_off(self) -> None:
        self._leaves_slot_free("breaks")

    def test_a_slot_is_free_after_a_client_that_disconnects(self) -> None:
        self._leaves_slot_free("stream")

    def _leaves_slot_free(self, behaviour: Behaviour) -> None:
        self.start(Route(), Route(path="/broken", behaviour=behaviour), limits=_ONE)
        exchange = self.open("/broken")
        exchange.start()
        assert exchange.read() == b"one,"
        exchange.disconnect()
        self.script.gate.open()
        exchange.wait()
        assert self.statuses(2) == [200, 200]

    @needs("can_cancel")
    def test_a_slot_is_free_after_a_request_that_is_cancelled(self) -> None:
        self.start(Route(), Route(path="/waits", behaviour="waits"), limits=_ONE, store=self.remote)
        exchange: Any = self.open("/waits")
        self.script.entered.wait_for(1)
        exchange.cancel()
        exchange.wait()
        assert self.ask().status == 200

    @needs("has_route_limits")
    def test_a_slot_of_a_route_is_free_however_the_request_ends(self) -> None:
        own = {"limits": _ONE, "name": "slot"}
        ends: tuple[Behaviour, ...] = ("ok", "raises", "fails", "stream")
        self.script.gate.open()
        self.start(*[Route(path=f"/{one}", behaviour=one, limit=own) for one in ends])
        expected = [200, 403, 500, 200, 200]
        assert [self.ask(f"/{one}").status for one in (*ends, "ok")] == expected

    def test_a_slot_is_renewed_for_as_long_as_its_request_lasts(self) -> None:
        place = Concurrency(1, ttl=1.2)
        self.start(Route(behaviour="waits"), limits=place, store=self.remote)
        waiting = self.open()
        self.script.entered.wait_for(1)
        for _ in range(2):
            self.clock.advance(0.8)
            self.remote.renewed.wait_for(round(self.clock.now * SECOND))
        assert self.ask().status == 429
        self.script.gate.open()
        assert waiting.finish().status == 200
