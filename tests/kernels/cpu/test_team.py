"""Threads that run one step together: call after call, awake or asleep, several decoders and callers."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_rig import Model, Rig, Work
from torch import Tensor

BATCH = [(1, 40), (3, 300), (40, 60), (1, 17)]
MODEL = Model(windows=(None, 100), formats=("int8", "int4"))
THREADS = [1, 2, 3]
PATIENCE = 60.0
"""Seconds until a test is given up."""


@dataclass(slots=True)
class Step:
    """A step that can be run again and again: it writes the same keys and values each time."""

    decoder: Any
    work: Work

    def run(self) -> Tensor:
        return self.work.run(self.decoder)


def step(decoder: Any, threads: int, seed: int = 0) -> Step:
    rig = Rig(replace(MODEL, threads=threads), decoder, seed=seed)
    return Step(rig.decoder, rig.work(BATCH))


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kernels-")]


def wait_until_asleep(thread: threading.Thread) -> None:
    """A helper blocks in one place only: where it waits to be woken."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat")
    deadline = time.monotonic() + PATIENCE
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline, f"{thread.name} never slept"
        os.sched_yield()


@pytest.mark.parametrize("threads", THREADS)
def test_many_calls_in_a_row_give_the_same(decoder: Any, threads: int) -> None:
    again = step(decoder, threads)
    first = again.run()
    for _ in range(300):
        assert torch.equal(again.run(), first)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the state of a thread from /proc")
@pytest.mark.parametrize("threads", [2, 3])
def test_helpers_that_sleep_are_woken(decoder: Any, threads: int) -> None:
    again = step(decoder, threads)
    first = again.run()
    for _ in range(20):
        for helper in helpers():
            wait_until_asleep(helper)
        assert torch.equal(again.run(), first)
        assert torch.equal(again.run(), first)


def test_calls_at_the_moment_when_helpers_fall_asleep(decoder: Any) -> None:
    """Pauses of every length around the one after which they do."""
    again = step(decoder, 2)
    first = again.run()
    for pause in range(200):
        until = time.perf_counter() + 2e-5 * pause
        while time.perf_counter() < until:
            pass
        assert torch.equal(again.run(), first)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell the caller's only")
def test_a_team_tells_how_long_each_of_its_threads_ran(decoder: Any) -> None:
    from kernels.cpu.native import team_of

    again = step(decoder, 3)
    again.run()
    before = team_of(3).cpu_s()
    for _ in range(50):
        again.run()
    assert all(later > earlier for earlier, later in zip(before, team_of(3).cpu_s(), strict=True))


def test_any_number_of_threads_gives_the_same(decoder: Any) -> None:
    results = [step(decoder, threads).run() for threads in THREADS]
    for other in results[1:]:
        assert torch.equal(other, results[0])


def test_decoders_take_turns_with_one_team(decoder: Any) -> None:
    steps = [step(decoder, 2, seed) for seed in range(3)]
    first = [each.run() for each in steps]
    running = len(helpers())
    for _ in range(20):
        for each, expected in zip(steps, first, strict=True):
            assert torch.equal(each.run(), expected)
    step(decoder, 2).run()
    assert len(helpers()) == running


def test_callers_in_several_threads_wait_for_each_other(decoder: Any) -> None:
    steps = [step(decoder, 2, seed) for seed in range(3)]
    first = [each.run() for each in steps]

    def repeat(number: int) -> bool:
        return all(torch.equal(steps[number].run(), first[number]) for _ in range(50))

    with ThreadPoolExecutor(len(steps)) as pool:
        assert all(pool.map(repeat, range(len(steps))))
