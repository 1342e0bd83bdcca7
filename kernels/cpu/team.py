"""Threads that run one native call together.

Torch's OpenMP pool and one of Numba's would fight for the cores, and a fork and join for each of the 200 parallel
phases of a step costs more than the small ones themselves. Here every thread runs the whole call and meets the others
at barriers made of atomics. Between calls the helpers look for work for a moment, then sleep until they are woken.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.cpu.compiler import compiled
from kernels.cpu.ir import I64, Builder, at, call
from kernels.cpu.weights import LINE

# Places in the control block, a cache line each.
CALL, ARRIVED, PHASE, JOB, MEMBERS, STATE = range(6)

_LOOKS_BEFORE_YIELD = 1000
_YIELDS_BEFORE_SLEEP = 2000

_AWAKE, _ASLEEP = 0, 1


@intrinsic
def atomic_load(typing: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        return builder.load_atomic(at(builder, arguments[0], 0, I64), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def atomic_store(typing: Any, address: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        builder.store_atomic(arguments[1], at(builder, arguments[0], 0, I64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def atomic_add(typing: Any, address: Any, value: Any) -> Any:
    """Returns the value before."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        return builder.atomic_rmw("add", at(builder, arguments[0], 0, I64), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def atomic_swap(typing: Any, address: Any, value: Any) -> Any:
    """Returns the value before."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        return builder.atomic_rmw("xchg", at(builder, arguments[0], 0, I64), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def yield_core(typing: Any) -> Any:
    """Let another thread have the core."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
        call(builder, "SwitchToThread" if sys.platform == "win32" else "sched_yield", ir.IntType(32))
        return context.get_dummy_value()

    return types.void(), codegen


@compiled
def wait_for_change(address: int, seen: int) -> None:
    """Until another thread stores something else than `seen`."""
    looks = 0
    while atomic_load(address) == seen:
        looks += 1
        if looks > _LOOKS_BEFORE_YIELD:
            yield_core()


@compiled
def barrier(control: int) -> None:
    """Until all members of the team are here."""
    phase = atomic_load(control + PHASE * LINE)
    if atomic_add(control + ARRIVED * LINE, 1) == atomic_load(control + MEMBERS * LINE) - 1:
        atomic_store(control + ARRIVED * LINE, 0)
        atomic_store(control + PHASE * LINE, phase + 1)
    else:
        wait_for_change(control + PHASE * LINE, phase)


@compiled
def take(counter: int, share: int) -> int:
    """The next of the shares into which a phase is cut; whoever is faster takes more of them."""
    return atomic_add(counter, 1) * share


@compiled
def await_call(control: int, seen: int, me: int) -> int:
    """The number of the next call, or `seen` when none came for a while and this thread is to sleep."""
    state = control + (STATE + me) * LINE
    looks = 0
    while True:
        number = atomic_load(control + CALL * LINE)
        if number != seen:
            return number
        looks += 1
        if looks > _LOOKS_BEFORE_YIELD:
            yield_core()
        if looks > _LOOKS_BEFORE_YIELD + _YIELDS_BEFORE_SLEEP:
            atomic_swap(state, _ASLEEP)
            if atomic_load(control + CALL * LINE) == seen or atomic_swap(state, _AWAKE) == _AWAKE:
                return seen  # where it is awake again, the caller has already raised the semaphore
            looks = 0


@compiled
def _post(control: int, job: int) -> None:
    atomic_store(control + JOB * LINE, job)
    atomic_add(control + CALL * LINE, 1)


@compiled
def _was_asleep(control: int, me: int) -> bool:
    return atomic_swap(control + (STATE + me) * LINE, _AWAKE) == _ASLEEP


@compiled
def _store(address: int, value: int) -> None:
    atomic_store(address, value)


class Team:
    """`size` threads, the caller among them, that do the same work together.

    `serve(control, seen, me)`, compiled and nogil, does the work of every call after number `seen`, each time ending
    with a barrier, until none has come for a while, or, as thread 0, of one call. It returns the number of the last.
    Calls come from one thread at a time.
    """

    def __init__(self, size: int, serve: Callable[[int, int, int], int]) -> None:
        self._serve = serve
        self._memory = np.zeros((STATE + size + 1) * LINE // 8, np.int64)
        self._control = -(-self._memory.ctypes.data // LINE) * LINE
        _store(self._control + MEMBERS * LINE, size)
        self._calls = 0
        self._wakers = [threading.Semaphore(0) for _ in range(1, size)]
        self._helpers = [
            threading.Thread(target=self._help, args=(me, waker), name=f"kernels-{me}", daemon=True)
            for me, waker in enumerate(self._wakers, 1)
        ]
        for helper in self._helpers:
            helper.start()

    def run(self, job: int) -> None:
        """Do the work at address `job` on all threads."""
        _post(self._control, job)
        for me, waker in enumerate(self._wakers, 1):
            if _was_asleep(self._control, me):
                waker.release()
        self._calls = self._serve(self._control, self._calls, 0)

    def cpu_s(self) -> list[float]:
        """The seconds that each thread has run so far, the caller's first; where the system does not tell them of
        other threads, only the caller's."""
        if sys.platform in ("darwin", "win32"):
            return [time.thread_time()]
        clocks = [time.pthread_getcpuclockid(helper.ident) for helper in self._helpers if helper.ident]
        return [time.thread_time(), *map(time.clock_gettime, clocks)]

    def _help(self, me: int, waker: threading.Semaphore) -> None:
        seen = 0
        while True:
            seen = self._serve(self._control, seen, me)
            waker.acquire()
