"""Decode steps in reserved memory, as CUDA graphs replay them: checked in Triton's interpreter, and on a GPU if there
is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from reference_models import save

import engine.runner
from engine.config import EngineConfig
from engine.model.decoder import Decoder
from engine.model.graphs import ReservedStep, ladder
from engine.runner import Chunk, ModelRunner, plan_step
from kernels.gpu.backend import TritonKernels

PROMPTS = {(3, 1): 16, (4,): 3}
"""The blocks of two sequences and how many tokens they have."""


@pytest.mark.filterwarnings("ignore:overflow encountered")  # in rows of padding, which hold anything
def test_a_padded_step_in_reserved_memory_gives_the_logits_of_a_step_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.runner, "select", TritonKernels)
    save("window on some layers", tmp_path)
    runner = ModelRunner(tmp_path, EngineConfig(model=tmp_path, dtype="float32", kv_memory=1 << 20, threads=1))
    decoder = runner._decoder
    assert isinstance(decoder, Decoder)
    runner.run([Chunk(range(count), 0, blocks, False) for blocks, count in PROMPTS.items()])
    steps = [
        plan_step([Chunk([token], count, blocks, True) for blocks, count in PROMPTS.items()], 16) for token in (5, 6)
    ]
    fewer = plan_step([Chunk([7], 3, (4,), True)], 16)
    planes = [plane.blocks for layer in decoder.cache for plane in layer]
    with torch.inference_mode():
        before = [blocks.clone() for blocks in planes]
        expected = [decoder.forward(step) for step in (*steps, fewer)]
        for blocks, kept in zip(planes, before, strict=True):
            blocks.copy_(kept)
        reserved = ReservedStep(decoder, sequences=3, blocks=16)
        decoder.compute(reserved.inputs)
        assert all(torch.equal(*pair) for pair in zip(planes, before, strict=True)), "padding is written nowhere"
        for step, logits in zip((*steps, fewer), expected, strict=True):
            reserved.fill(step)
            ours = decoder.compute(reserved.inputs)[: len(step.logit_rows)]
            torch.testing.assert_close(ours, logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sequences", [1, 2, 3, 16, 40, 64])
def test_every_batch_has_a_recording_that_is_little_larger(sequences: int) -> None:
    sizes = ladder(sequences)
    assert sizes == sorted(set(sizes)) and sizes[-1] == sequences
    for batch in range(1, sequences + 1):
        size = next(size for size in sizes if size >= batch)
        assert size < 2 * batch and size - batch < 8


ON_A_GPU = """
import sys
from engine import Engine, EngineConfig, GenerationRequest, SamplingParams
from engine.model.graphs import GraphDecoder

def tokens(recorded):
    engine = Engine(EngineConfig(model=sys.argv[1], device="cuda", dtype="float32", kv_memory=1 << 24))
    assert isinstance(engine._runner._decoder, GraphDecoder)
    if not recorded:
        engine._runner._decoder = engine._runner._decoder._decoder
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    requests = [GenerationRequest(tuple(range(1, 8 * count)), params) for count in (1, 2, 3)]
    return [done.token_ids for done in engine.generate(requests)]

assert tokens(True) == tokens(False)
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_and_launched_steps_give_the_same_tokens(tiny_model: Path) -> None:
    compiled = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", ON_A_GPU, str(tiny_model)], env=compiled, check=True)
