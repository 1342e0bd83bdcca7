"""What the kernels beside attention take of a GPU: `python -m kernels.gpu.aot_step 90`, see `kernels.gpu.aot`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import torch

from kernels.contract import LayerCache, Plane
from kernels.gpu.aot import Usage, usage
from kernels.gpu.kv_write import launch_constants, rotary_kv_write_kernel
from kernels.gpu.pointwise import gated_constants, gated_kernel, norm_constants, rms_norm_kernel
from kernels.gpu.sampler import draw_constants, draw_kernel
from kernels.kv_format import Groups, KVFormat, head_bytes

HALF = torch.float16


def write_usage(format: KVFormat, head_dim: int, capability: int) -> Usage:
    """Of the cache write of 32 query and 8 key/value heads in float16."""
    sizes = (16, 8, head_dim)
    layer = LayerCache(
        *(
            Plane(torch.empty(1, 16 * 8 * head_bytes(storage, head_dim), dtype=torch.uint8), storage, *sizes)
            for storage in format
        )
    )
    constants = launch_constants(layer, 32)
    types, names = ["*fp16", "*fp16", "*fp16", "*i64", "*fp16"], ("key_parameters", "value_parameters")
    for name, storage in zip(names, format, strict=True):
        if isinstance(storage, Groups):
            types += ["*u8", "*fp16"]
        else:
            types += ["*fp16", "constexpr"]
            constants[name] = None
    name = f"rotary_kv_write, head {head_dim}, {format}"
    return usage(name, rotary_kv_write_kernel, [*types, "i32:16"], constants, capability)


def sample(capability: int) -> Iterator[Usage]:
    """Small and large ones of each."""
    for size in (576, 4096, 16384):
        types = ["*fp16"] * 5 + ["fp32", "i32:16", "i32", "i32"]
        yield usage(f"add_rms_norm of {size}", rms_norm_kernel, types, norm_constants(size, True), capability)
    for activation in ("silu", "gelu_tanh"):
        constants = gated_constants(14336, activation)
        yield usage(f"gated {activation}", gated_kernel, ["*fp16"] * 2, constants, capability)
    types = ["*fp32", "*fp64", "*i64", "i32:16", "i32:16"]
    yield usage("draw", draw_kernel, types, draw_constants(128256), capability)
    for head_dim in (80, 128) if capability < 90 else (64, 256):
        int8 = Groups(8, head_dim, rotated=True)
        for format in (KVFormat(HALF, HALF), KVFormat(int8, Groups(4, head_dim, rotated=True))):
            yield write_usage(format, head_dim, capability)
    yield write_usage(KVFormat(Groups(8, 64), Groups(4, 32)), 64, capability)


if __name__ == "__main__":
    for found in sample(int(sys.argv[1])):
        print(json.dumps(found._asdict()), flush=True)
