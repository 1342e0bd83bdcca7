"""A paged inference engine, usable alone from Python.

    from engine import Engine, EngineConfig, GenerationRequest, SamplingParams

Names resolve on first use: the plain data, the errors and the process client come without torch, `Engine` brings it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.api import (
        Accepted,
        Divergence,
        EngineState,
        EngineStats,
        Event,
        Failed,
        Finished,
        FinishReason,
        GenerationRequest,
        Message,
        Metrics,
        ModelInfo,
        PoolStats,
        Progress,
        SamplingParams,
        TokenDelta,
    )
    from engine.client import EngineClient, InProcessClient, Listener
    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.errors import ConfigError, EngineError, InvalidRequest, ModelError
    from engine.process import ProcessClient

__all__ = [
    "Accepted",
    "ConfigError",
    "Divergence",
    "Engine",
    "EngineClient",
    "EngineConfig",
    "EngineError",
    "EngineState",
    "EngineStats",
    "Event",
    "Failed",
    "FinishReason",
    "Finished",
    "GenerationRequest",
    "InProcessClient",
    "InvalidRequest",
    "Listener",
    "Message",
    "Metrics",
    "ModelError",
    "ModelInfo",
    "PoolStats",
    "ProcessClient",
    "Progress",
    "SamplingParams",
    "TokenDelta",
]

_HOME = {
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EngineClient": "engine.client",
    "InProcessClient": "engine.client",
    "Listener": "engine.client",
    "ProcessClient": "engine.process",
    "ConfigError": "engine.errors",
    "EngineError": "engine.errors",
    "InvalidRequest": "engine.errors",
    "ModelError": "engine.errors",
}
"""Where a name lives, if not in engine.api."""


# OpenMP's threads wait for each other some 200 times a step. GNU's spin for milliseconds before they sleep, so where
# another process wants a core too, a step takes 10 times as long; never spinning makes an idle machine 1.5 times
# slower. This is some 10 us of spinning, near the best in both. OpenMP reads it when torch loads it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "engine.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
