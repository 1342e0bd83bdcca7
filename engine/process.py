"""An engine in its own process: the UI keeps its interpreter lock and its priority, and survives a crash."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from engine import loop
from engine.api import EngineState, Event
from engine.client import QueueClient
from engine.config import EngineConfig

NICENESS = 5


class ProcessClient(QueueClient):
    """Spawns the engine process and talks to it in msgpack frames over a pipe: commands one way, lists of events
    the other. What the process prints or logs goes to `log_path`."""

    def __init__(self, config: EngineConfig, log_path: Path) -> None:
        super().__init__(config)
        self._log_path = log_path
        self._process: multiprocessing.process.BaseProcess | None = None
        # The first spawn starts multiprocessing's tracker with the descriptor of stderr: now, while there is one. A
        # terminal UI replaces sys.stderr with something that has none.
        resource_tracker.ensure_running()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def _serve(self, commands: queue.SimpleQueue[loop.Command]) -> None:
        context = multiprocessing.get_context("spawn")
        connection, theirs = context.Pipe()
        process = context.Process(
            target=_main, args=(self._config, theirs, self._log_path), name="kvchat-engine", daemon=True
        )
        try:
            process.start()
        except OSError as error:
            self._deliver([EngineState("failed", f"the engine process cannot be started: {error}")])
            return
        finally:
            theirs.close()
        self._process = process
        if self._closing:
            process.terminate()
        writer = threading.Thread(target=_write, args=(commands, connection), name="engine-writer", daemon=True)
        writer.start()
        decode = msgspec.msgpack.Decoder(list[Event]).decode
        failed = False
        try:
            while True:
                events = decode(connection.recv_bytes())
                failed = failed or any(isinstance(event, EngineState) and event.state == "failed" for event in events)
                self._deliver(events)
        except (EOFError, ConnectionError):
            process.join()
        commands.put(loop.Close())  # wakes the writer
        writer.join()
        connection.close()
        if not (failed or self._closing):
            self._deliver([EngineState("died", _obituary(process.exitcode))])

    def _end_engine(self) -> None:
        if self._process is not None:
            self._process.terminate()  # it has nothing to save, and may be loading for long


def _write(commands: queue.SimpleQueue[loop.Command], connection: Connection) -> None:
    encode = msgspec.msgpack.Encoder().encode
    while True:
        command = commands.get()
        try:
            connection.send_bytes(encode(command))
        except OSError:
            return  # the reader sees the same end and reports it
        if isinstance(command, loop.Close):
            return


def _obituary(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the engine process was killed by {signal.Signals(-exitcode).name}"
    return f"the engine process ended with exit code {exitcode}"


def _main(config: EngineConfig, connection: Connection, log_path: Path) -> None:
    """The engine process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the UI's
    os.nice(NICENESS)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(log, descriptor)  # nothing may be written over the UI
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    commands: queue.SimpleQueue[loop.Command] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, commands), name="reader", daemon=True).start()
    encode = msgspec.msgpack.Encoder().encode
    loop.run(config, commands, lambda events: connection.send_bytes(encode(events)))


def _read(connection: Connection, commands: queue.SimpleQueue[loop.Command]) -> None:
    decode = msgspec.msgpack.Decoder(loop.Command).decode
    try:
        while True:
            commands.put(decode(connection.recv_bytes()))
    except (EOFError, ConnectionError):
        os._exit(0)  # the UI is gone, nobody waits for the step in progress
