"""The kernel contract in Triton, with torch's matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.contract import Activation, Draw, LayerCache, PackedLinear, Plane, Span
from kernels.gpu import pointwise, sampler
from kernels.gpu.attention import paged_attention
from kernels.gpu.kv_write import rotary_kv_write
from kernels.gpu.plan import Plan, ReservedPlan, Sizes, plan_spans
from kernels.kv_format import Groups, rotate


class TritonKernels:
    """What each op does is told in `kernels.contract.Kernels`.

    The device is a GPU, or the CPU where Triton is interpreted, which then makes believe to have 4 SMs.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._sm_count, self._hopper = 4, False
        if device.type == "cuda":
            self._sm_count = torch.cuda.get_device_properties(device).multi_processor_count
            self._hopper = torch.cuda.get_device_capability(device)[0] in (9, 10)

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
        return weight, bias

    def linear(self, x: Tensor, packed: PackedLinear) -> Tensor:
        return F.linear(x, *packed)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return pointwise.rms_norm(x, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return pointwise.add_rms_norm(x, residual, weight, eps)

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        return pointwise.gated(gate_up, activation)

    def rotary_kv_write(self, heads: Tensor, cos: Tensor, sin: Tensor, layer: LayerCache, slots: Tensor) -> Tensor:
        return rotary_kv_write(heads, cos, sin, layer, slots)

    def plan_attention(self, spans: Sequence[Span], layer: LayerCache, n_head: int, window: int | None) -> Plan:
        return plan_spans(spans, self._sizes(layer, n_head), window, self.device)

    def reserve_decodes(
        self, sequences: int, blocks: int, layer: LayerCache, n_head: int, window: int | None
    ) -> ReservedPlan:
        """A plan for any decodes of at most so many sequences of at most so many blocks, which stays where it is:
        launches over it may be captured and replayed after it was filled anew."""
        return ReservedPlan(sequences, blocks, self._sizes(layer, n_head), window, self.device)

    def _sizes(self, layer: LayerCache, n_head: int) -> Sizes:
        keys, values = layer
        return Sizes(
            n_head,
            keys.n_kv_head,
            keys.head_dim,
            keys.storage,
            values.storage,
            self.dtype,
            self._sm_count,
            self._hopper,
        )

    def paged_attention(self, q: Tensor, layer: LayerCache, plan: Plan) -> Tensor:
        rows, n_head, head_dim = q.shape
        out = torch.empty(rows, n_head * head_dim, dtype=q.dtype, device=q.device)
        for launch in plan.launches:
            paged_attention(
                q,
                layer,
                launch.block_tables,
                launch.items,
                launch.merges,
                launch.shape,
                out,
                plan.workspace,
                window=plan.window,
            )
        return rotate(out.view(q.shape)).flatten(1) if _rotated(layer.values) else out

    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> list[int]:
        return sampler.draw(logits, draws)


def _rotated(plane: Plane) -> bool:
    return isinstance(plane.storage, Groups) and plane.storage.rotated
