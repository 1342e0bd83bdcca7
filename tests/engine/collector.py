"""A listener to wait on."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from engine.api import Event


class Collector:
    """Keeps every event it was waited through."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def __call__(self, events: Sequence[Event]) -> None:
        for event in events:
            self._queue.put(event)

    def until(self, wanted: Callable[[Event], bool], timeout: float = 120) -> Event:
        """The first event from now on that is wanted. Raises queue.Empty when none comes."""
        while True:
            event = self._queue.get(timeout=timeout)
            self.events.append(event)
            if wanted(event):
                return event
