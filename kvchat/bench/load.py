"""Requests that arrive over time, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.api import Event, Finished, GenerationRequest
from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    """From the start."""
    request: GenerationRequest


def serve(
    engine: Engine, arrivals: Sequence[Arrival], after_step: Callable[[list[Event]], None] = lambda events: None
) -> list[Finished]:
    """Submit each request when its time has come, compute until all have ended; in the order of the arrivals, which
    is that of their times. `after_step` is given the events of each step."""
    started = time.monotonic()
    waiting, order = list(arrivals), list[str]()
    ended: dict[str, Finished] = {}
    while waiting or engine.has_work:
        now = time.monotonic() - started
        while waiting and waiting[0].at_s <= now:
            arrival = waiting.pop(0)
            order.append(engine.submit(arrival.request, started + arrival.at_s))
        if not engine.has_work:
            time.sleep(waiting[0].at_s - now)
            continue
        events = engine.step()
        ended |= {event.request_id: event for event in events if isinstance(event, Finished)}
        after_step(events)
    return [ended[request_id] for request_id in order]
