"""`engine.bench` over a tiny model in Triton's interpreter: every line of it can be measured."""

from __future__ import annotations

import json

import msgspec
import torch

from engine.bench import MODELS, Sizes, load, measure
from kernels.bench.figure import Figure
from kernels.gpu.backend import TritonKernels

CPU = torch.device("cpu")


def test_all_of_it_runs_and_can_be_sent_on_as_json() -> None:
    tiny = msgspec.structs.replace(
        MODELS["1B"],
        hidden_size=32,
        intermediate_size=32,
        n_layer=1,
        windows=(None,),
        n_head=2,
        n_kv_head=1,
        head_dim=32,
        vocab_size=40,
    )
    sizes = Sizes(sequences=(1, 2), contexts=(3, 9), steps=1, chunk=4)
    model = load("tiny", tiny, TritonKernels(CPU, torch.float32), torch.float32, CPU, sizes)
    figures = list(measure(model, sizes, bandwidth=1e9))
    assert [figure.what for figure in figures] == [
        "tiny: prefill of 9 tokens",
        "tiny: a decode step of 1 x 3, launched one by one",
        "tiny: a decode step of 1 x 3, recorded",
        "tiny: a decode step of 2 x 3, launched one by one",
        "tiny: a decode step of 2 x 3, recorded",
        "tiny: 1 x 3, decoding",
        "tiny: 2 x 3, decoding",
        "tiny: 1 x 9, decoding",
        "tiny: 2 x 9, decoding",
    ]
    assert all(figure.value > 0 for figure in figures)
    assert [Figure(*json.loads(json.dumps(figure))) for figure in figures] == figures
