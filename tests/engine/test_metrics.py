"""What the engine counts over time."""

from __future__ import annotations

import pytest

from engine import metrics
from engine.metrics import WINDOW_S, Throughput


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(metrics, "monotonic", clock)
    return clock


def work(throughput: Throughput, clock: Clock, seconds: float, tokens_per_s: int) -> None:
    for _ in range(round(10 * seconds)):
        clock.now += 0.1
        throughput.add(tokens_per_s // 10)


def test_throughput_is_told_from_the_first_second_on(clock: Clock) -> None:
    throughput = Throughput()
    work(throughput, clock, 1, 100)
    assert throughput.per_second() == pytest.approx(100)


def test_a_pause_before_the_work_does_not_count(clock: Clock) -> None:
    throughput = Throughput()
    work(throughput, clock, 10, 100)
    clock.now += 3
    throughput.begin()
    work(throughput, clock, 0.5, 60)
    assert throughput.per_second() == pytest.approx(60)


def test_what_is_older_than_the_window_does_not_count(clock: Clock) -> None:
    throughput = Throughput()
    work(throughput, clock, 10, 100)
    work(throughput, clock, 2 * WINDOW_S, 50)
    assert throughput.per_second() == pytest.approx(50, abs=2)


def test_without_work_there_is_none(clock: Clock) -> None:
    throughput = Throughput()
    throughput.begin()
    assert throughput.per_second() == 0
