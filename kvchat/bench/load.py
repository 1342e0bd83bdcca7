"""Requests that arrive over time, and what becomes of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.api import EngineStats, Event, Finished, GenerationRequest
from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    """From the start."""
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Moment:
    """One step, and the state it left."""

    at_s: float
    """When it ended, from the start."""
    seconds: float
    """That it took."""
    rows: int
    """Sequences that were running in it."""
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class Served:
    finished: Sequence[Finished]
    """In the order of the arrivals."""
    moments: Sequence[Moment]
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens of all requests."""
        return sum(len(each.token_ids) for each in self.finished) / self.seconds

    def mean(self, of: Callable[[Moment], float]) -> float:
        """Over the time in which anything was running, the end of the last step left out."""
        running = [moment for moment in self.moments if moment.stats.running]
        return sum(of(moment) * moment.seconds for moment in running) / sum(moment.seconds for moment in running)


def serve(
    engine: Engine, arrivals: Sequence[Arrival], after_step: Callable[[list[Event]], None] = lambda events: None
) -> Served:
    """Submit each request when its time has come, and compute until all have ended. The arrivals are in the order of
    their times; `after_step` is given the events of each step."""
    started = time.monotonic()
    waiting, order = list(arrivals), list[str]()
    ended: dict[str, Finished] = {}
    moments: list[Moment] = []
    while waiting or engine.has_work:
        now = time.monotonic() - started
        while waiting and waiting[0].at_s <= now:
            arrival = waiting.pop(0)
            order.append(engine.submit(arrival.request, started + arrival.at_s))
        if not engine.has_work:
            time.sleep(waiting[0].at_s - now)
            continue
        before = time.monotonic()
        events = engine.step()
        after = time.monotonic()
        finished = [event for event in events if isinstance(event, Finished)]
        ended |= {event.request_id: event for event in finished}
        stats = engine.snapshot()
        moments.append(Moment(after - started, after - before, stats.running + len(finished), stats))
        after_step(events)
    return Served([ended[request_id] for request_id in order], moments, time.monotonic() - started)


def log_uniform(source: random.Random, low: int, high: int) -> int:
    """A length from `low` to `high`, as many of them in 10 to 100 as in 100 to 1,000."""
    return round(low * (high / low) ** source.random())
