"""One protocol for whoever drives an engine: on a thread of this process, or in a process of its own (the TUI)."""

from __future__ import annotations

import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol
from uuid import uuid4

import msgspec

from engine import loop
from engine.api import EngineState, Event, Failed, Finished, GenerationRequest
from engine.config import EngineConfig

Listener = Callable[[Sequence[Event]], None]
"""Called on the client's own thread with events in the order they happened, at most about 30 times a second."""


class EngineClient(Protocol):
    """Submitting and aborting return at once; whatever happens comes back as events through the listener."""

    def start(self, listener: Listener) -> None:
        """Begin loading the model. The listener hears EngineState("loading") ... ("ready" | "failed").
        Requests submitted meanwhile wait. Called again after "failed" or "died", it starts a fresh engine."""

    def submit(self, request: GenerationRequest) -> str:
        """Queue a request and return its id. A refusal comes as Failed, and so does the end of the engine."""

    def abort(self, request_id: str) -> None:
        """Stop a request within one step; it ends with Finished("aborted"). An unknown id is ignored."""

    def close(self) -> None:
        """Stop the engine and release what it holds. Idempotent."""

    def configure(self, config: EngineConfig) -> None:
        """After `close`: the engine that `start` begins next is another one. What was not finished ends with Failed."""


class QueueClient(EngineClient):
    """What both clients share: commands wait in a queue until an engine takes them, and no request is left
    without an end when the engine goes."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._listener: Listener = lambda events: None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._lock = threading.Lock()
        self._commands: queue.SimpleQueue[loop.Command] = queue.SimpleQueue()
        self._live: set[str] = set()

    def start(self, listener: Listener) -> None:
        self._listener = listener
        self._closing = False
        self._thread = threading.Thread(target=self._serve, args=(self._commands,), name="engine", daemon=True)
        self._thread.start()

    @abstractmethod
    def _serve(self, commands: queue.SimpleQueue[loop.Command]) -> None:
        """Run one engine to its end, on the client's thread."""

    @abstractmethod
    def _end_engine(self) -> None:
        """Make `_serve` return soon."""

    def submit(self, request: GenerationRequest) -> str:
        if not request.request_id:
            request = msgspec.structs.replace(request, request_id=uuid4().hex[:12])
        with self._lock:
            self._live.add(request.request_id)
            self._commands.put(loop.Submit(request, monotonic()))
        return request.request_id

    def abort(self, request_id: str) -> None:
        with self._lock:
            self._commands.put(loop.Abort(request_id))

    def close(self) -> None:
        if self._thread is not None:
            self._closing = True
            self._end_engine()
            self._thread.join()
            self._thread = None

    def configure(self, config: EngineConfig) -> None:
        self._config = config
        if lost := self._retire():
            self._listener([Failed(request_id, "the engine was replaced meanwhile") for request_id in lost])

    def _deliver(self, events: list[Event]) -> None:
        for event in tuple(events):
            match event:
                case Finished(request_id=request_id) | Failed(request_id=request_id):
                    self._live.discard(request_id)
                case EngineState(state="failed" | "died", detail=detail):
                    events += [Failed(request_id, detail) for request_id in self._retire()]
        self._listener(events)

    def _retire(self) -> set[str]:
        """The engine is gone: what it had not finished. What is submitted from now on waits for the next one."""
        with self._lock:
            lost, self._live = self._live, set()
            self._commands = queue.SimpleQueue()
        return lost


class InProcessClient(QueueClient):
    """An engine on a thread of this process."""

    def _serve(self, commands: queue.SimpleQueue[loop.Command]) -> None:
        loop.run(self._config, commands, self._deliver)

    def _end_engine(self) -> None:
        with self._lock:
            self._commands.put(loop.Close())
