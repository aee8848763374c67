"""Reading `accuracy` and `on_store_failure`: how exactly a fleet keeps a limit, and what is done
while it cannot be kept."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from headgate.decisions import FailurePolicy, OnFailure
from headgate.limits import Accuracy
from headgate.limits.accuracy import MOST_PARTS
from headgate.limits.model import LARGEST_QUOTA
from headgate.rules.model import AfterFailOpen
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields
from headgate.rules.reading.tree import Scalar, Table
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

Word = TypeVar("Word", bound=str)

STORE_FAILURES: Final[tuple[FailurePolicy, ...]] = get_args(FailurePolicy)
AFTER_FAIL_OPEN: Final[tuple[AfterFailOpen, ...]] = get_args(AfterFailOpen)
ACCURACY_FIELDS: Final = ("max_overshoot", "batch", "sync", "denials", "split")
FAILURE_FIELDS: Final = ("mode", "share", "max_fail_open", "then")


def read_accuracy(spot: Spot) -> Accuracy | None:
    """How far a fleet may overshoot, and how it saves round trips."""
    fields = Fields.of(spot, ACCURACY_FIELDS, "the accuracy")
    if fields is None:
        return None
    before = spot.findings.errors
    if not fields.present(ACCURACY_FIELDS):
        spot.wrong(f"found nothing in it, expected one of {', '.join(ACCURACY_FIELDS)}")
    if "split" in fields and not fields.present(("max_overshoot", "batch")):
        told = "split needs max_overshoot or batch: the parts are lent in advance"
        fields["split"].wrong(told)
    overshoot = fields.read("max_overshoot", scalars.percentage, None)
    batch = fields.read("batch", _batch, None)
    sync_ns = fields.read("sync", _sync_ns, None)
    denials_ns = fields.read("denials", _denials_ns, None)
    split = fields.read("split", _split, 1)
    if spot.findings.errors > before:
        return None
    return Accuracy(overshoot, batch, sync_ns, denials_ns, split)


def read_on_store_failure(spot: Spot) -> OnFailure | None:
    """A word, or a mapping with the word and its terms."""
    if not isinstance(spot.node, Table):
        alone = _mode(spot)
        return None if alone is None else OnFailure(alone)
    fields = Fields.of(spot, FAILURE_FIELDS, "what to do when the store cannot decide")
    if fields is None:
        return None
    before = spot.findings.errors
    mode: FailurePolicy = fields.read("mode", _mode, "fail_open")
    share = fields.read("share", scalars.percentage, Fraction(1))
    open_ns = fields.read("max_fail_open", scalars.duration_ns, None)
    then: AfterFailOpen = fields.read("then", _then, "fail_closed")
    if mode == "fail_closed" and "share" in fields:
        fields["share"].wrong("a rule that fails closed admits nothing", hint="leave share out")
    if mode != "fail_open" and "max_fail_open" in fields:
        fields["max_fail_open"].wrong(f"is for fail_open, and the mode is {mode}")
    if "then" in fields and "max_fail_open" not in fields:
        fields["then"].wrong("needs max_fail_open: after how long")
    return OnFailure(mode, share, open_ns, then) if spot.findings.errors == before else None


def _word(spot: Spot, words: tuple[Word, ...]) -> Word | None:
    found = scalars.choice(spot, *words)
    return next((known for known in words if known == found), None)


def _mode(spot: Spot) -> FailurePolicy | None:
    return _word(spot, STORE_FAILURES)


def _then(spot: Spot) -> AfterFailOpen | None:
    return _word(spot, AFTER_FAIL_OPEN)


def _batch(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, LARGEST_QUOTA)


def _split(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, MOST_PARTS)


def _sync_ns(spot: Spot) -> int | None:
    found = scalars.duration_ns(spot)
    if found is not None and found < MILLISECOND:
        spot.wrong("found less than a millisecond; expected such as 100ms")
        return None
    return found


def _denials_ns(spot: Spot) -> int | None:
    """For how long a refusal is remembered; `off` for not at all."""
    node = spot.node
    if isinstance(node, Scalar) and (node.boolean is False or node.text == "off"):
        return 0
    return scalars.duration_ns(spot)
