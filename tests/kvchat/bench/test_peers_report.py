"""The table, the notes and the JSON of a comparison."""

from __future__ import annotations

import json

import pytest

from kvchat.bench.peers.report import Failure, Machine, Report, Row
from kvchat.cli.table import table


@pytest.fixture
def report() -> Report:
    return Report(
        machine=Machine(cpu="a CPU", cores=4, threads=2, memory_bytes=16_000_000_000, bandwidth_bytes_per_s=40e9),
        model="small",
        seed=7,
        rounds=3,
        engines={"kvchat": "1.0", "other": "2.0"},
        rows=[
            Row(
                "decode, 1 x 128",
                "tokens/s",
                True,
                {"kvchat": [300.0, 200.0, 1000.0], "other": [100, 50, 150]},
                bandwidth_fraction=0.456,
            ),
            Row("one-shot, cold start", "s", False, {"kvchat": [2.0], "other": [0.5]}),
            Row("prefill, 512", "tokens/s", True, {"kvchat": [4321.0]}),
        ],
        failures=[Failure("other", "prefill, 512", "no memory")],
        missing={"third": "not found: get it"},
        left_out=["decode, 1 x 4,096"],
    )


def test_the_table_has_medians_and_how_many_times_better_kvchat_is(report: Report) -> None:
    header, decode, one_shot, prefill = report.table()
    assert header == ["", "", "kvchat", "of bandwidth", "other", "ratio"]
    assert decode == ["decode, 1 x 128", "tokens/s", "300", "46 %", "100", "3.00x"]
    assert one_shot == ["one-shot, cold start", "s", "2.00", "", "0.50", "0.25x"], "four times slower"
    assert prefill == ["prefill, 512", "tokens/s", "4,321", "", "-", ""]


def test_the_table_lines_up(report: Report) -> None:
    lines = table(report.table()).splitlines()
    assert len(lines) == 4
    assert len({line.index(number) for line, number in zip(lines[1:], ("300", "2.00", "4,321"), strict=True)}) == 1


def test_the_notes_say_what_the_table_cannot(report: Report) -> None:
    notes = "\n".join(report.notes())
    assert "a CPU, 2 threads on 4 cores, reads 40.0 GB/s; 16 GB of memory" in notes
    assert "small; medians; rounds: 3, after a warming one; seed: 7" in notes
    assert "kvchat: 1.0" in notes and "other: 2.0" in notes
    assert "other: prefill, 512: no memory" in notes
    assert "third: not found: get it" in notes
    assert "left out, longer than the model's context: decode, 1 x 4,096" in notes


def test_the_json_has_every_measurement_beside_the_medians(report: Report) -> None:
    plain = json.loads(json.dumps(report.as_json()))
    decode, one_shot, prefill = plain["rows"]
    assert decode["values"]["kvchat"] == [300.0, 200.0, 1000.0]
    assert decode["medians"] == {"kvchat": 300.0, "other": 100.0} and decode["ratios"] == {"other": 3.0}
    assert decode["bandwidth_fraction"] == 0.456
    assert one_shot["ratios"] == {"other": 0.25}
    assert prefill["medians"] == {"kvchat": 4321.0, "other": None} and prefill["ratios"] == {"other": None}
    assert plain["machine"]["bandwidth_bytes_per_s"] == 40e9
    assert plain["missing"] == {"third": "not found: get it"}
    assert plain["failures"] == [{"engine": "other", "cell": "prefill, 512", "error": "no memory"}]
