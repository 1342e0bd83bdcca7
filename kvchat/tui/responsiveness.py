"""How promptly the interface answers: the lag of its event loop, and what else takes its time."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import deque
from dataclasses import dataclass

INTERVAL_S = 0.05
WINDOW_S = 5.0
LAG_LIMIT_S = 0.033
"""Two frames at 60 Hz, where a delay begins to be felt: the 95th percentile should stay below."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Seconds; all 0 before the first sample."""

    p50: float = 0.0
    p95: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, slots=True)
class Responsiveness:
    """The interface over the last seconds."""

    lag: Lag = Lag()
    frames_per_s: float = 0.0
    frame_s: float = 0.0
    """Seconds to draw a frame and hand it to the terminal, the mean."""
    updates_per_s: float = 0.0
    """Changes of conversations; most of them are tokens that arrive."""
    cpu: float = 0.0
    """Of this process; 1 is one core. The engine is a process of its own."""
    load_per_core: float = 0.0
    """Tasks of the whole machine that run or want to, over the last minute; above 1 they wait for each other."""


class LoopLag:
    """Samples how late the running event loop calls what is due, every INTERVAL_S over the last `window_s`.

    A callback that blocks the loop also keeps samples from being taken: the late one stands for them too, so that the
    distribution is what events see that arrive at any time. A block counts with at least its length less INTERVAL_S. A
    selector that waits whole milliseconds counts with up to one.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._size = round(window_s / INTERVAL_S)
        self._samples: deque[float] = deque(maxlen=self._size)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin a new window."""
        self.stop()
        self._samples.clear()
        self._schedule()

    def stop(self) -> None:
        """Take no more samples; those of the window stay."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def measure(self) -> Lag:
        """The lag over the window."""
        ordered = sorted(self._samples)
        if not ordered:
            return Lag()
        p50, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
        return Lag(p50, p95, ordered[-1])

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + INTERVAL_S
        self._timer = loop.call_at(due, self._sample, due)

    def _sample(self, due: float) -> None:
        late = max(0.0, asyncio.get_running_loop().time() - due)
        missed = min(int(late / INTERVAL_S), self._size - 1)
        self._samples.extend(late - index * INTERVAL_S for index in range(missed + 1))
        self._schedule()


class _Speed:
    """How fast a number that only grows has grown over its last samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=10)

    def sample(self, total: float) -> float:
        """Growth per second."""
        now = time.monotonic()
        self._samples.append((now, total))
        before, start = self._samples[0]
        return (total - start) / (now - before) if now > before else 0.0


class Gauge:
    """Gathers a Responsiveness while it is watched; costs nothing otherwise but to count."""

    def __init__(self) -> None:
        self.watching = False
        """Call `watch` to change it."""
        self._lag = LoopLag()
        self._frames = 0
        self._drawing_s = 0.0
        self._updates = 0
        self._speeds: tuple[_Speed, ...] = ()

    def watch(self, on: bool) -> None:
        """Watch from now on, or no more."""
        if on == self.watching:
            return
        self.watching = on
        if on:
            self._speeds = tuple(_Speed() for _ in range(4))
            self._lag.start()
        else:
            self._lag.stop()

    def frame_drawn(self, seconds: float) -> None:
        self._frames += 1
        self._drawing_s += seconds

    def updated(self) -> None:
        self._updates += 1

    def read(self) -> Responsiveness:
        """Take a sample; call it about twice a second while it is watched."""
        totals = self._frames, self._drawing_s, self._updates, time.process_time()
        frames, drawing, updates, cpu = (speed.sample(total) for speed, total in zip(self._speeds, totals, strict=True))
        return Responsiveness(
            lag=self._lag.measure(),
            frames_per_s=frames,
            frame_s=drawing / frames if frames else 0.0,
            updates_per_s=updates,
            cpu=cpu,
            load_per_core=os.getloadavg()[0] / (os.cpu_count() or 1),
        )
