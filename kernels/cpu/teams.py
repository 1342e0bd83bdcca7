"""How many threads run a step: as many as there are cores for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from time import perf_counter
from typing import Protocol

WINDOW_S = 0.1
"""Of calls, after which the number of threads is looked at."""
LEAST_CPU = 0.6
"""A thread that ran for a smaller part of a window shares its core with another program."""
HOLD_S, LONGEST_HOLD_S = 0.5, 8.0
"""Until all threads are tried again: at first, and at most, when it failed several times."""


class Runner(Protocol):
    """Several threads that run a call together, see `kernels.cpu.team.Team`."""

    def run(self, job: int) -> None: ...

    def cpu_s(self) -> Sequence[float]:
        """The seconds that each thread has run so far."""


class Teams:
    """Runs calls on at most `most` threads, on fewer while other programs want their cores.

    The threads of a call meet 200 times in it. When another program has the core of one, all others wait until it is
    back, milliseconds each time: with every core wanted, two threads are many times slower than one.
    """

    def __init__(self, most: int, team: Callable[[int], Runner], clock: Callable[[], float] = perf_counter) -> None:
        self.size = self._most = most
        """The threads of the next call."""
        self._team, self._clock = team, clock
        self._window_s = 0.0
        self._cpu_s: list[float] = []
        self._hold_s, self._held_until = HOLD_S, 0.0

    def run(self, job: int) -> None:
        """Do the work at address `job`."""
        team = self._team(self.size)
        began, before = self._clock(), team.cpu_s()
        team.run(job)
        self._window_s += self._clock() - began
        used = (later - earlier for earlier, later in zip(before, team.cpu_s(), strict=True))
        self._cpu_s = [sum(both) for both in zip_longest(self._cpu_s, used, fillvalue=0.0)]
        if self._window_s >= WINDOW_S:
            self._choose(min(self._cpu_s) / self._window_s)
            self._window_s, self._cpu_s = 0.0, []

    def _choose(self, cpu: float) -> None:
        """`cpu`: the part of the last window in which the thread that waited longest ran."""
        now = self._clock()
        if self.size > 1 and cpu < LEAST_CPU:
            if self.size == self._most:
                self._held_until, self._hold_s = now + self._hold_s, min(2 * self._hold_s, LONGEST_HOLD_S)
            self.size = self.size * 3 // 4
        elif self.size == self._most:
            self._hold_s = HOLD_S
        elif now >= self._held_until:
            self.size = self._most
