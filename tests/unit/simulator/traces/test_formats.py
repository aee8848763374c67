"""What each format of traces is read as."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import OptionError
from headgate.policy.loader import read_policy_data
from headgate.simulator import Arrival, ModelUse, Trace, TraceError, open_trace
from headgate.units import MILLISECOND, SECOND

POLICY = read_policy_data(
    {"version": 1, "rules": [{"id": "per-key", "key_by": "api_key", "limit": "1/s"}]}
)
AT_NS = 1_763_320_000 * SECOND  # 2025-11-16T19:06:40Z
ANN = (("x-api-key", "ann"),)


def trace_of(path: Path, text: str, **options: Any) -> Trace:
    file = path / "trace"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return open_trace(str(file), policies=[POLICY], **options)


def read(path: Path, text: str, **options: Any) -> list[Arrival]:
    return list(trace_of(path, text, **options))


@pytest.mark.parametrize(
    "time",
    [
        "1763320000",
        "1763320000.000",
        "1763320000000",
        "1763320000000000",
        "1763320000000000000",
        "2025-11-16T19:06:40Z",
        "2025-11-16T19:06:40.000000+00:00",
        "2025-11-16 19:06:40",
        "2025-11-16T20:06:40+01:00",
        "16/Nov/2025:19:06:40 +0000",
        "16/Nov/2025:14:06:40 -0500",
    ],
)
def test_times_are_found_out(tmp_path: Path, time: str) -> None:
    (one,) = read(tmp_path, f"time,path\n{time},/a\n")
    assert one.at_ns == AT_NS


def test_fractions_of_seconds_are_kept_to_the_microsecond(tmp_path: Path) -> None:
    text = "time\n1763320000.123456\n1763320000.25\n"
    assert [one.at_ns - AT_NS for one in read(tmp_path, text)] == [123_456_000, 250_000_000]
    text = "time\n2025-11-16T19:06:40.123456Z\n2025-11-16T19:06:40.25Z\n"
    assert [one.at_ns - AT_NS for one in read(tmp_path, text)] == [123_456_000, 250_000_000]


def test_columns_of_a_table_are_known_by_their_names(tmp_path: Path) -> None:
    text = (
        "status,Method,PATH,ip,X-API-Key,cost,timestamp,request_time,user_agent\n"
        "200,post,/a?b=c,1.2.3.4,ann,3,1763320000,0.250,curl\n"
    )
    expected = Arrival(AT_NS, "POST", "/a", ANN, "1.2.3.4", 3, 250 * MILLISECOND)
    assert read(tmp_path, text) == [expected]


def test_calls_of_language_models_are_known_by_their_tokens(tmp_path: Path) -> None:
    text = (
        "time,path,model,prompt_tokens,completion_tokens,max_tokens\n"
        "1763320000,/v1/chat/completions,GPT-4o,100,20,500\n"
        "1763320000,/v1/messages,,100,,\n"
        "1763320000,/health,,,,\n"
        "1763320000,/v1/messages,,many,,\n"
    )
    first, second, third = read(tmp_path, text)
    assert (first.method, first.call) == ("POST", ModelUse("gpt-4o", 100, 20, 500))
    assert second.call == ModelUse(None, 100, None, None)
    assert (third.method, third.call) == ("GET", None)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_may_have_other_delimiters_ends_of_lines_and_a_mark(
    tmp_path: Path, delimiter: str
) -> None:
    rows = [["time", "path", "x-api-key"], ["1763320000", "/a", "ann"]]
    text = "\ufeff" + "".join(f"{delimiter.join(row)}\r\n" for row in rows)
    assert read(tmp_path, text) == [Arrival(AT_NS, "GET", "/a", ANN)]


def test_cells_may_be_quoted(tmp_path: Path) -> None:
    text = 'time,"path",x-api-key\n1763320000,"/a,b","ann ""x"""\n'
    (one,) = read(tmp_path, text)
    assert (one.path, one.headers) == ("/a,b", (("x-api-key", 'ann "x"'),))


def test_the_time_may_be_quoted_too(tmp_path: Path) -> None:
    text = 'time,path,x-api-key\n1763320000,/a,ann\n"1763320001","/b","ann"\n1763320002,/c,ann\n'
    assert [one.path for one in read(tmp_path, text)] == ["/a", "/b", "/c"]
    text = '"time","path"\n"2025-11-16T19:06:40Z","/a, b"\n"2025-11-16T19:06:41Z","/c"\n'
    assert [one.path for one in read(tmp_path, text)] == ["/a, b", "/c"]


def test_there_may_be_blanks_around_cells(tmp_path: Path) -> None:
    (one,) = read(tmp_path, "path, time, x-api-key\n/a, 2025-11-16T19:06:40Z, ann\n")
    assert one == Arrival(AT_NS, "GET", "/a", ANN)


def test_headers_may_be_in_columns_of_other_names(tmp_path: Path) -> None:
    assert read(tmp_path, "time,api_key\n1763320000,ann\n")[0].headers == ANN
    found = read(tmp_path, "time,who\n1763320000,ann\n", headers={"X-Api-Key": "who"})
    assert found[0].headers == ANN


def test_without_policies_all_other_columns_are_headers(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text("time,x_color,http_x_tone\n1,red,dark\n")
    (one,) = open_trace(str(file))
    assert one.headers == (("x-color", "red"), ("x-tone", "dark"))


def test_objects_are_read_with_the_same_names(tmp_path: Path) -> None:
    objects = [
        {"ts": 1763320000, "method": "GET", "path": "/a", "headers": {"X-Api-Key": "ann", "a": 1}},
        {"time": "2025-11-16T19:06:40Z", "uri": "http://h/b?c", "x_api_key": "ann", "ip": None},
        {"@timestamp": 1763320000000, "request": "PUT /c HTTP/2", "duration": 12, "status": 200},
    ]
    text = "".join(json.dumps(one) + "\n" for one in objects)
    assert read(tmp_path, text) == [
        Arrival(AT_NS, "GET", "/a", ANN),
        Arrival(AT_NS, "GET", "/b", ANN),
        Arrival(AT_NS, "PUT", "/c", took_ns=12 * MILLISECOND),
    ]


NGINX = '1.2.3.4 - ann [16/Nov/2025:19:06:40 +0000] "POST /a?b HTTP/1.1" 200 612'


@pytest.mark.parametrize(
    ("after", "took_ns"),
    [
        ("", None),
        (' "-" "curl/8.5 (a \\"b\\")"', None),
        (' "-" "curl/8" 0.012', 12 * MILLISECOND),
        (' "-" "curl/8" "10.0.0.1" rt=0.012 uct="0.001"', 12 * MILLISECOND),
    ],
)
def test_access_logs_of_nginx_are_read(tmp_path: Path, after: str, took_ns: int | None) -> None:
    expected = Arrival(AT_NS, "POST", "/a", (), "1.2.3.4", None, took_ns)
    assert read(tmp_path, f"{NGINX}{after}\n") == [expected]


def test_the_requests_of_a_whole_second_are_spread_over_it(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, f"{NGINX}\n" * 4)
    assert [one.at_ns - AT_NS for one in trace] == [n * 250 * MILLISECOND for n in range(4)]
    assert any("whole seconds" in note for note in trace.notes)


def test_access_logs_of_envoy_are_read(tmp_path: Path) -> None:
    text = (
        '[2025-11-16T19:06:40.310Z] "GET /a?b HTTP/1.1" 200 - 0 5 9 8 "9.9.9.9, 1.2.3.4" '
        '"curl" "id" "example.com" "10.0.0.1:80"\n'
        '[2025-11-16T19:06:40.310Z] "GET /b HTTP/1.1" 503 UF via_upstream - "-" 0 5 9 - "-" '
        '"curl" "id" "example.com" "-"\n'
    )
    first, second = read(tmp_path, text)
    host = ("host", "example.com")
    assert first == Arrival(
        AT_NS + 310 * MILLISECOND,
        "GET",
        "/a",
        (("x-forwarded-for", "9.9.9.9"), host),
        "1.2.3.4",
        None,
        9 * MILLISECOND,
    )
    assert (second.path, second.ip, second.headers) == ("/b", "", (host,))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_compressed_traces_are_read_whatever_they_are_called(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(compress(b"time,path\n1763320000,/a\n"))
    trace = open_trace(str(file))
    assert [one.path for one in trace] == ["/a"]
    assert trace.share == 1.0


def test_broken_lines_are_counted_and_told_with_their_number(tmp_path: Path) -> None:
    lines = ["time,path,cost", "1763320000,/a,1", "x,/b,1", "", "1763320001,/c", "1763320002,/d,-1"]
    trace = trace_of(tmp_path, "\n".join([*lines, "1763320003,/e,2"]))
    assert [one.path for one in trace] == ["/a", "/e"]
    assert trace.skipped == 3
    (note,) = trace.notes
    for told in ("line 3: ", "line 5: 2 columns", "line 6: the cost '-1'"):
        assert told in note


@pytest.mark.parametrize(
    "text",
    [
        "time,path\n1763320000,/a\ninf,/a\n1e999,/a\n1763320001,/b\n",
        "path,time,took\n/a,1763320000,1\n/a,inf,1\n/a,1763320000,inf\n/b,1763320001,1\n",
        '{"time": 1763320000, "path": "/a"}\n{"time": 1e999}\n{"time": 1%s}\n'
        '{"time": 1763320001, "path": "/b"}\n' % ("0" * 400),
    ],
)
def test_numbers_without_end_are_not_understood(tmp_path: Path, text: str) -> None:
    trace = trace_of(tmp_path, text)
    assert [one.path for one in trace] == ["/a", "/b"]
    assert trace.skipped == 2


@pytest.mark.parametrize(
    "text",
    [
        "time\n2025-11-16T19:06:40Z\n1969-12-31T23:59:59Z\n9999-12-31T00:00:00Z\n",
        "time\n16/Nov/2025:19:06:40 +0000\n31/Dec/1969:23:59:59 +0000\n01/Jan/3000:00:00:00\n",
    ],
)
def test_years_far_off_are_no_times_however_they_are_written(tmp_path: Path, text: str) -> None:
    trace = trace_of(tmp_path, text)
    assert [one.at_ns for one in trace] == [AT_NS]
    assert trace.skipped == 2
    assert "expected one from 1970 to 2999" in trace.notes[0]


def test_a_broken_object_does_not_hide_the_next(tmp_path: Path) -> None:
    good = '{"time": 1763320000, "path": "/a"}'
    trace = trace_of(tmp_path, f'{good}\n{{"time": \n[1]\n{{"path": "/b"}}\n{good}\n')
    assert len(list(trace)) == 2
    assert trace.skipped == 3


def test_lines_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    times = [5, 3, 4, 1, 2]
    text = "time\n" + "".join(f"{1763320000 + one}\n" for one in times)
    assert [one.at_ns - AT_NS for one in read(tmp_path, text)] == [n * SECOND for n in range(1, 6)]


def test_what_is_further_out_of_place_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.simulator.traces.trace.WINDOW", 10)
    monkeypatch.setattr("headgate.simulator.traces.trace._CHUNK", 64)
    text = "time\n" + "".join(f"{1763320000 + one}\n" for one in [*range(1, 100), 0])
    trace = trace_of(tmp_path, text)
    assert len(list(trace)) == 100
    assert trace.late == 1
    assert any("out of order" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("hello\nworld\n", "is unknown; expected CSV"),
        ("method,path\nGET,/\n", "is unknown; expected CSV"),
        ("time,path\nyesterday,/a\n", "line 2: invalid time 'yesterday'"),
        ("time,path\n", "is valid csv"),
        ("\x00\x01\x02", "expected CSV"),
    ],
)
def test_a_trace_in_which_nothing_is_understood_says_what_was_expected(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(TraceError, match=r"expected CSV .* nginx or Envoy") as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


def test_a_format_that_is_said_is_not_found_out(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no valid header row"):
        read(tmp_path, '{"time": 1}\n', kind="csv")
    with pytest.raises(OptionError, match="expected one of csv, jsonl"):
        read(tmp_path, "time\n1\n", kind="xml")


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        open_trace(str(tmp_path / "nowhere"))
    broken = tmp_path / "trace.gz"
    broken.write_bytes(gzip.compress(b"time\n" + b"1\n" * 9999)[:-20])
    with pytest.raises(TraceError, match="cannot read"):
        list(open_trace(str(broken)))


def test_a_line_without_end_takes_no_memory_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.simulator.traces.trace.LONGEST_LINE", 100)
    monkeypatch.setattr("headgate.simulator.traces.trace._CHUNK", 64)
    trace = trace_of(tmp_path, "time,path\n1763320000,/a\n" + "x" * 1000 + "\n1763320001,/b\n")
    assert [one.path for one in trace] == ["/a", "/b"]
    assert trace.skipped > 1
