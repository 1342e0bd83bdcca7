"""Engine settings for a pattern of requests: no one configuration suits short questions, long documents and long texts.

A profile gives defaults; a setting that the user wrote, or gave as a flag, goes before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

ProfileName = Literal["chat", "documents", "writer"]


@dataclass(frozen=True, slots=True)
class Profile:
    pattern: str
    """The requests that it is for."""
    why: str
    """What they need, and how the settings give it to them."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of EngineConfig."""


PROFILES: dict[ProfileName, Profile] = {
    "chat": Profile(
        "short questions, many at the same time",
        "Keys and values are few, and scheduling is what counts. More than sixteen conversations in a step gain little "
        "on a CPU, which then multiplies for longer than it reads. Every question begins with a persona: pinned ones "
        "may keep a quarter of the pool.",
        {"max_sequences": 16, "max_batch_tokens": 512, "kv_dtype": "auto", "pin_fraction": 0.25},
    ),
    "documents": Profile(
        "long documents, and several questions about each",
        "Keys and values outgrow the weights: in 8 bits they take half, and only four conversations at a time contend "
        "for the pool, where the next question finds its document again. The more stands before a chunk, the longer it "
        "takes: at half the size the others wait no longer for it.",
        {"max_sequences": 4, "max_batch_tokens": 256, "kv_dtype": "int8", "pin_fraction": 0.1},
    ),
    "writer": Profile(
        "one long text at a time",
        "Nobody shares a step or waits for it: a prompt is computed in large pieces, and the whole pool is the text's. "
        "Keys and values stay as they are computed: what rounding loses adds up over a long text.",
        {"max_sequences": 2, "max_batch_tokens": 2048, "kv_dtype": "auto", "pin_fraction": 0.0},
    ),
}
DEFAULT_PROFILE: ProfileName = "chat"
PROFILE_NAMES: tuple[ProfileName, ...] = get_args(ProfileName)
