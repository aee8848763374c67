"""Messages that are defined as data."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool, duration_pb2

from headgate.protos import (
    DURATION,
    STRING,
    UINT32,
    UINT64,
    Enum,
    Field,
    File,
    Message,
    define,
)

_FILE = File(
    "headgate/test.proto",
    "headgate.test",
    (
        Message(
            "Ask",
            (
                Field(1, "domain", STRING),
                Field(2, "numbers", UINT32, many=True),
                Field(3, "wait", "google.protobuf.Duration"),
                Field(4, "code", "headgate.test.Ask.Code", is_enum=True),
                Field(5, "one", STRING, one_of="choice"),
                Field(6, "other", UINT64, one_of="choice"),
                Field(7, "labels", "headgate.test.Ask.LabelsEntry", many=True),
            ),
            (
                Message(
                    "LabelsEntry", (Field(1, "key", STRING), Field(2, "value", STRING)), entry=True
                ),
            ),
            (Enum("Code", {"UNKNOWN": 0, "OK": 1}),),
        ),
    ),
    needs=(DURATION.name,),
)
_PROTOS = define(DURATION, _FILE)


def test_a_message_comes_back_as_it_was_sent() -> None:
    ask = _PROTOS["headgate.test.Ask"]
    said = ask(domain="edge", numbers=[1, 300], code=1, labels={"a": "b"}, other=2**64 - 1)
    said.wait.seconds = 5
    heard = ask.FromString(said.SerializeToString())
    assert heard == said
    assert heard.WhichOneof("choice") == "other"
    assert dict(heard.labels) == {"a": "b"}


def test_the_last_of_a_choice_counts() -> None:
    ask = _PROTOS["headgate.test.Ask"](one="x")
    ask.other = 3
    assert (ask.one, ask.other) == ("", 3)


def test_the_wire_is_that_of_the_original_definitions() -> None:
    ours = _PROTOS["google.protobuf.Duration"](seconds=-7, nanos=-9)
    theirs = duration_pb2.Duration(seconds=-7, nanos=-9)
    assert ours.SerializeToString() == theirs.SerializeToString()


def test_nothing_is_added_to_the_pool_that_everybody_shares() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("headgate.test.Ask")


def test_the_same_file_can_be_defined_twice() -> None:
    assert define(DURATION, _FILE)["headgate.test.Ask"](domain="x").domain == "x"


def test_headgate_itself_does_not_need_the_packages_of_the_service() -> None:
    code = (
        "import sys, headgate, headgate.protos, headgate.control\n"
        "print([m for m in ('google.protobuf', 'grpc', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
