"""What kernels take of a GPU, without one: they are compiled ahead of time, and the machine code is asked.

`python -m kernels.gpu.aot 90` prints a line of JSON for each of a sample of the attention kernels, as they would be
launched on a GPU of compute capability 9.0. Triton must not be interpreting.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.contract import LayerCache, Plane
from kernels.gpu.attention import attend_constants, merge_constants
from kernels.gpu.attention_kernels import attend, merge
from kernels.gpu.launch import decode_shape, prefill_shape
from kernels.kv_format import Groups, KVFormat

POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
OPTIONS = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
"""Of the constants of a launch, those that no kernel names."""


class Usage(NamedTuple):
    kernel: str
    registers: int
    """Of a thread."""
    spilled: int
    """Bytes of a thread that found no register."""
    shared: int
    """Bytes of a program."""


def usage(name: str, kernel: Any, types: Sequence[str], constants: dict[str, Any], capability: int) -> Usage:
    """Of a kernel whose arguments are of these Triton types, then the constants. Pointers are multiples of 16, and so
    are integers written "i32:16"."""
    options = {key: constants[key] for key in OPTIONS if key in constants}
    constants = {key: value for key, value in constants.items() if key not in OPTIONS}
    signature = {key: type.removesuffix(":16") for key, type in zip(kernel.arg_names, types, strict=False)}
    aligned = {(i,): [["tt.divisibility", 16]] for i, type in enumerate(types) if type[0] == "*" or type[-3:] == ":16"}
    source = ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", cubin.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # A thread's stack holds nothing but what was spilled; its static shared memory, which CUDA keeps, counts as well.
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", told)
    if found is None:
        raise RuntimeError(f"{command[0]} tells no registers of {name}: {told!r}")
    registers, stack, static = map(int, found.groups())
    return Usage(name, registers, stack, static + compiled.metadata.shared)


def attention_usage(decodes: bool, group: int, format: KVFormat, head_dim: int, capability: int) -> Usage:
    """Of `attend` in float16, for 8 key/value heads and blocks of 16."""
    half = torch.float16
    choose = decode_shape if decodes else prefill_shape
    shape = choose(group, head_dim, *format, half, hopper=90 <= capability < 120)
    empty = torch.empty(0, 0, dtype=torch.uint8)
    layer = LayerCache(*(Plane(empty, storage, 16, 8, head_dim) for storage in format))
    planes = [("*u8", "*i32") if isinstance(storage, Groups) else [POINTERS[storage]] * 2 for storage in format]
    lists, partial, sizes = ["*i32"] * 2, ["*fp32"] * 2, ["fp32", "i32:16", "i32"]
    types = ["*fp16", "*fp16", *planes[0], *planes[1], *lists, *partial, *sizes]
    name = f"{'decode' if decodes else 'prefill'}, head {head_dim}, {format}"
    return usage(name, attend, types, attend_constants(8 * group, layer, shape, None, None), capability)


def merge_usage(head_dim: int, capability: int) -> Usage:
    """Of `merge` in float16, after decodes of 32 query heads."""
    half = torch.float16
    constants = merge_constants(32, head_dim, decode_shape(4, head_dim, half, half, half))
    return usage(f"merge, head {head_dim}", merge, ["*fp16", "*i32", "*fp32", "*fp32"], constants, capability)


def sample(capability: int) -> Iterator[Usage]:
    """Every head size with every storage, by decodes or by a prefill chunk, which takes longer to compile."""
    for i, head_dim in enumerate((64, 128, 256)):
        half, int8, int4 = torch.float16, Groups(8, head_dim), Groups(4, head_dim)
        for j, format in enumerate((KVFormat(half, half), KVFormat(int8, int8), KVFormat(int8, int4))):
            # Other ones for each generation of GPUs.
            prefill = (i + j - capability // 10) % 3 == 0
            yield attention_usage(not prefill, 4, format, head_dim, capability)
    yield merge_usage(256, capability)


if __name__ == "__main__":
    for found in sample(int(sys.argv[1])):
        print(json.dumps(found._asdict()), flush=True)
