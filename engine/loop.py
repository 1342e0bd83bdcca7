"""Drives an engine from a queue of commands, on whatever thread or process calls `run`."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from engine.api import EngineState, Event, Failed, GenerationRequest, TokenDelta
from engine.config import EngineConfig
from engine.errors import EngineError, InvalidRequest, PromptTooLong

if TYPE_CHECKING:
    from engine.engine import Engine

FRAME_S = 1 / 30
log = logging.getLogger(__name__)


class Submit(msgspec.Struct, frozen=True, tag=True):
    request: GenerationRequest
    at: float
    """time.monotonic() of the submission; the clock is the same in every process of a machine."""


class Abort(msgspec.Struct, frozen=True, tag=True):
    request_id: str


class Close(msgspec.Struct, frozen=True, tag=True):
    pass


Command = Submit | Abort | Close
Emit = Callable[[list[Event]], None]


def run(config: EngineConfig, commands: queue.SimpleQueue[Command], emit: Emit) -> None:
    """Load, then serve until Close. Events are emitted in frames: one per step, at most 30 a second.

    An engine that cannot load or go on ends with EngineState("failed"); the traceback of a bug is logged.
    """
    emit([EngineState("loading", "starting the engine")])
    try:
        from engine.engine import Engine  # imports torch: only after somebody was told that loading began

        _serve(Engine(config, lambda text, fraction: emit([EngineState("loading", text)])), commands, emit)
    except EngineError as error:
        emit([EngineState("failed", str(error))])
    except Exception as error:
        log.exception("the engine cannot go on")
        emit([EngineState("failed", f"the engine failed: {type(error).__name__}: {error}")])


def _serve(engine: Engine, commands: queue.SimpleQueue[Command], emit: Emit) -> None:
    sent_stats = engine.stats()
    emit([EngineState("ready", model=engine.info), sent_stats])
    frame: list[Event] = []
    frame_at = monotonic()
    while True:
        for command in _take(commands, wait=not engine.has_work):
            match command:
                case Close():
                    return
                case Abort(request_id):
                    engine.abort(request_id)
                case Submit(request, at):
                    try:
                        engine.submit(request, at)
                    except InvalidRequest as error:
                        too_long = isinstance(error, PromptTooLong)
                        frame.append(Failed(request.request_id, str(error), refused=True, too_long=too_long))
        if engine.has_work:
            frame += engine.step()
        if engine.stats() is not sent_stats:
            sent_stats = engine.stats()
            frame.append(sent_stats)
        if frame and (not engine.has_work or monotonic() - frame_at >= FRAME_S):
            emit(merge_deltas(frame))
            frame, frame_at = [], monotonic()


def _take(commands: queue.SimpleQueue[Command], wait: bool) -> list[Command]:
    taken = [commands.get()] if wait else []
    while not commands.empty():
        taken.append(commands.get())
    return taken


def merge_deltas(events: list[Event]) -> list[Event]:
    """Join the text deltas of each request within one frame; the order of everything else stays."""
    merged: list[Event] = []
    deltas: dict[str, tuple[int, TokenDelta]] = {}
    for event in events:
        if not isinstance(event, TokenDelta):
            merged.append(event)
            continue
        position, delta = len(merged), event
        if earlier := deltas.get(event.request_id):
            position = earlier[0]
            delta = TokenDelta(event.request_id, earlier[1].text + event.text, earlier[1].token_ids + event.token_ids)
        merged[position : position + 1] = [delta]
        deltas[event.request_id] = position, delta
    return merged
