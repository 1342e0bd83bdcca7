"""Numbers and foreign text on the screen."""

from __future__ import annotations

import pytest

from engine.api import Metrics
from kvchat.tui.format import percent, printable, rate, seconds, shorten, size, statistics, typed


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.00005, "0.1 ms"),
        (0.0241, "24.1 ms"),
        (0.0996, "100 ms"),
        (0.182, "182 ms"),
        (0.9996, "1.00 s"),
        (12.345, "12.35 s"),
        (61, "1 min 1 s"),
    ],
)
def test_times_have_three_digits(value: float | None, shown: str) -> None:
    assert seconds(value) == shown


def test_other_numbers() -> None:
    assert [rate(value) for value in (None, 41.51, 99.96, 1234.5)] == ["–", "41.5", "100", "1,234"]
    assert [size(value) for value in (0, 1023, 2048, 188_743_680, 2**31)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "180 MiB",
        "2.0 GiB",
    ]
    assert percent(0.874) == "87 %"
    assert [shorten("abcdef", 6), shorten("abc def", 5)] == ["abcdef", "abc…"]


def test_a_line_of_statistics_leaves_out_what_says_nothing() -> None:
    assert statistics(Metrics(ttft_s=0.1, completion_tokens=1)) == "ttft 100 ms · 1 token"
    whole = Metrics(
        queue_s=1.5,
        ttft_s=0.2,
        tpot_s=0.02,
        tokens_per_s=50.0,
        prompt_tokens=100,
        cached_tokens=50,
        completion_tokens=1200,
        preemptions=2,
    )
    assert statistics(whole) == (
        "ttft 200 ms · tpot 20.0 ms · 50.0 tok/s · 1,200 tokens · 50 % cached · queued 1.50 s · preempted 2×"
    )


def test_control_characters_become_visible() -> None:
    every_control = "".join(map(chr, [*range(0x20), 0x7F, *range(0x80, 0xA0)]))
    shown = printable(every_control)
    assert {ord(character) for character in shown} & {*range(0x20), 0x7F, *range(0x80, 0xA0)} == {ord("\t"), ord("\n")}
    assert printable("a\x1b[1m\r\nb") == "a␛[1m\nb"


def test_a_paste_is_as_if_it_had_been_typed() -> None:
    assert typed("a\r\nb\rc\td\x1b[0m\x00") == "a\nb\nc\td[0m"
