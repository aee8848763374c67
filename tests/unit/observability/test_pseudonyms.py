"""Keys as they may be told."""

from headgate.observability import pseudonyms


def test_a_key_has_one_pseudonym_wherever_the_salt_is_the_same() -> None:
    one, other = pseudonyms(b"salt"), pseudonyms(b"salt")
    assert one("user:42") == other("user:42") != one("user:43")
    assert len(one("user:42")) == 16


def test_without_the_salt_nobody_finds_out_whose_it_is() -> None:
    assert pseudonyms(b"salt")("user:42") != pseudonyms(b"other")("user:42")
    assert pseudonyms()("user:42") != pseudonyms()("user:42"), "each has a salt of its own"


def test_any_salt_and_any_key_will_do() -> None:
    assert len({pseudonyms(bytes([n]) * 300)("\ud800" * n) for n in range(1, 5)}) == 4
