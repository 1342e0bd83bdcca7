"""What `kvchat plan` finds out about a model on this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.config import EngineConfig
from engine.device import compute_dtype, find_device
from engine.errors import ConfigError
from engine.kv_cache import default_cap, free_memory
from engine.kv_choice import GATES, choose_format
from engine.locate import model_folder
from engine.model.config import ModelConfig
from kernels.kv_format import KVFormat
from kvchat.bench.footprint import WeightMemory, measured_token_bytes, weight_memory
from kvchat.bench.memory_plan import MemoryPlan, advise, plan
from kvchat.catalogue.folder import weight_files
from kvchat.profiles import ProfileName


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    model: str
    shape: ModelConfig
    kv_format: KVFormat
    kv_warning: str
    """Why the format is known to lose too much, or not well known; mostly empty."""
    weight_file_bytes: int
    weights: WeightMemory
    plan: MemoryPlan
    max_sequences: int
    """That run at the same time, whatever the pool holds."""
    measured_token_bytes: float
    free_bytes: int
    """Of the machine's memory, before the model is loaded."""
    profile: ProfileName
    reason: str

    @property
    def needed_bytes(self) -> int:
        """Of the weights and the conversations asked for."""
        return self.weights.total + self.plan.need.kv_bytes

    @property
    def most(self) -> int:
        """Conversations of the context asked for that fit into all memory that is free."""
        one = self.plan.need.kv_bytes // self.plan.need.conversations
        return max(0, self.free_bytes - self.weights.total) // one

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "kv_format": str(self.kv_format),
            "kv_warning": self.kv_warning,
            "weight_file_bytes": self.weight_file_bytes,
            "weights": asdict(self.weights),
            "measured_token_bytes": self.measured_token_bytes,
            "free_bytes": self.free_bytes,
            "needed_bytes": self.needed_bytes,
            "max_sequences": self.max_sequences,
            "fits": self.needed_bytes <= self.free_bytes,
            "most_conversations": self.most,
            "profile": self.profile,
            "profile_reason": self.reason,
        } | asdict(self.plan)


def survey(config: EngineConfig, context: int | None, conversations: int) -> PlanReport:
    """For `conversations` of `context` tokens each, None for as many as they may have. Raises EngineError for a model
    or settings that cannot be used."""
    folder, device = model_folder(config.model), find_device(config.device)
    shape, dtype = ModelConfig.read(folder), compute_dtype(config.dtype, device)
    format, warning = choose_format(config.kv_dtype, shape, folder, dtype)
    context = context or config.context_length or shape.context_length
    if context > shape.context_length and shape.rope.kind != "dynamic":
        raise ConfigError(f"{context:,} tokens of context are more than the {shape.context_length:,} of the model")
    weights = weight_memory(folder, shape, config, device, format)
    pool = default_cap(device, weights.total) if config.kv_memory is None else config.kv_memory
    planned = plan(shape, format, context, conversations, pool, config.block_size)
    one, packed = planned.need.kv_bytes // conversations, config.kv_dtype in GATES
    profile, reason = advise(one, conversations, weights.step_bytes, pool, packed)
    return PlanReport(
        model=str(config.model),
        shape=shape,
        kv_format=format,
        kv_warning=warning,
        weight_file_bytes=sum(file.stat().st_size for file in weight_files(folder)),
        weights=weights,
        max_sequences=config.max_sequences,
        plan=planned,
        measured_token_bytes=measured_token_bytes(shape, format, config.block_size, device),
        free_bytes=free_memory(device),
        profile=profile,
        reason=reason,
    )
