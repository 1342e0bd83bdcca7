"""How many threads a step runs on, while other programs take cores and give them back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernels.cpu.teams import HOLD_S, LONGEST_HOLD_S, WINDOW_S, Teams

THREADS = 8
CALL_S = 0.01


class Machine:
    """Calls last CALL_S; of the threads in one, as many as cores are free run all the time, the others half of it."""

    def __init__(self) -> None:
        self.free = THREADS
        self.now = 0.0
        self.cpu = [0.0] * THREADS
        self.calls: list[int] = []
        """How many threads each had."""
        self.teams = Teams(THREADS, lambda size: Crew(self, size), lambda: self.now)

    def run(self, seconds: float) -> list[int]:
        """How many threads the calls in that time had."""
        until, before = self.now + seconds, len(self.calls)
        while self.now < until:
            self.teams.run(0)
        return self.calls[before:]


@dataclass
class Crew:
    machine: Machine
    size: int

    def run(self, job: int) -> None:
        self.machine.now += CALL_S
        self.machine.calls.append(self.size)
        for me in range(self.size):
            self.machine.cpu[me] += CALL_S if me < self.machine.free else CALL_S / 2

    def cpu_s(self) -> list[float]:
        return self.machine.cpu[: self.size]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_on_a_free_machine_all_threads_run_every_call(machine: Machine) -> None:
    assert set(machine.run(60)) == {THREADS}


@given(free=some.integers(1, THREADS - 1))
def test_threads_that_share_their_core_are_given_up(free: int) -> None:
    machine = Machine()
    machine.free = free
    calls = machine.run(60)
    assert sum(size > free for size in calls) < len(calls) / 10


def test_one_thread_is_never_given_up(machine: Machine) -> None:
    machine.free = 0
    assert min(machine.run(60)) == 1


def test_all_threads_are_tried_again_and_each_time_later(machine: Machine) -> None:
    machine.free = 1
    calls = machine.run(60)
    starts = [at for at in range(1, len(calls)) if calls[at] == THREADS > calls[at - 1]]
    pauses = [(later - earlier) * CALL_S for earlier, later in zip(starts, starts[1:], strict=False)]
    assert pauses[0] < pauses[1] < pauses[2]
    assert pauses[-1] == pytest.approx(LONGEST_HOLD_S, abs=8 * WINDOW_S)
    assert calls.count(1) > 0.8 * len(calls)


def test_all_threads_are_back_when_the_cores_are(machine: Machine) -> None:
    machine.free = 1
    machine.run(1)
    machine.free = THREADS
    machine.run(4 * HOLD_S)
    assert set(machine.run(60)) == {THREADS}


def test_after_a_free_while_threads_are_tried_again_as_soon_as_at_first(machine: Machine) -> None:
    machine.free = 1
    machine.run(30)
    machine.free = THREADS
    machine.run(2 * LONGEST_HOLD_S)
    machine.free = 1
    machine.run(2 * WINDOW_S)
    machine.free = THREADS
    assert THREADS in machine.run(HOLD_S + WINDOW_S)
