"""The decoder against Hugging Face transformers in float32, over every way a token can be computed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from reference_models import KINDS, logits_of, save
from torch import Tensor

from engine.config import EngineConfig
from engine.runner import Chunk, ModelRunner

BLOCK = 16
CLOSE = 1e-3


class Pages:
    """Block tables in random places of the pool, so that no two blocks of a sequence are neighbours by plan."""

    def __init__(self, runner: ModelRunner) -> None:
        self._free = list(range(runner.num_blocks))
        random.Random(4).shuffle(self._free)

    def table(self, tokens: int) -> list[int]:
        return [self._free.pop() for _ in range(-(-tokens // BLOCK))]


class Model:
    """One model twice: with transformers, and with our runner."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.peer = save(kind, folder)
        config = EngineConfig(model=folder, dtype="float32", kv_memory=8 << 20, block_size=BLOCK, threads=1)
        self.runner = ModelRunner(folder, config)
        self.pages = Pages(self.runner)
        self.tokens = [random.Random(9).randrange(320) for _ in range(100)]
        self.expected = logits_of(self.peer, self.tokens)

    def feed(self, table: list[int], start: int, end: int) -> Tensor:
        return self.runner.run([Chunk(self.tokens[start:end], start, table, True)])[0]


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(request.param, tmp_path_factory.mktemp("model"))


def same(ours: Tensor, theirs: Tensor) -> bool:
    return (ours - theirs).abs().max().item() < CLOSE


def test_prefill(model: Model) -> None:
    assert same(model.feed(model.pages.table(100), 0, 100), model.expected[99])


@pytest.mark.parametrize("size", [1, 7, 16, 33])
def test_prefill_in_chunks(model: Model, size: int) -> None:
    table = model.pages.table(100)
    for start in range(0, 100, size):
        end = min(start + size, 100)
        assert same(model.feed(table, start, end), model.expected[end - 1])


def test_prefill_behind_a_cached_prefix(model: Model) -> None:
    first = model.pages.table(100)
    model.feed(first, 0, 100)
    second = first[:3] + model.pages.table(100 - 3 * BLOCK)
    # Of the fourth block ten rows are wanted, so 58 tokens are not computed again.
    model.runner.copy_blocks([(first[3], second[3])])
    assert same(model.feed(second, 58, 100), model.expected[99])


def test_decode(model: Model) -> None:
    table = model.pages.table(100)
    model.feed(table, 0, 90)
    for position in range(90, 100):
        assert same(model.feed(table, position, position + 1), model.expected[position])


def test_decodes_and_prefills_of_any_length_in_one_step(model: Model) -> None:
    lengths = [1, 2, 15, 16, 17, 40, 99]
    tables = [model.pages.table(100) for _ in range(len(lengths) + 2)]
    for table, length in zip(tables, lengths, strict=False):
        model.feed(table, 0, length)
    model.feed(tables[-1], 0, 20)
    decodes = [
        Chunk([model.tokens[length]], length, table, True) for table, length in zip(tables, lengths, strict=False)
    ]
    prefills = [
        Chunk(model.tokens[:30], 0, tables[-2], False),
        Chunk(model.tokens[20:85], 20, tables[-1], True),
    ]
    step = [decodes[0], prefills[0], *decodes[1:], prefills[1]]
    logits = model.runner.run(step)
    assert len(logits) == len(lengths) + 1
    for row, position in zip(logits, [*lengths, 84], strict=True):
        assert same(row, model.expected[position])


def test_what_was_in_a_block_before_never_shows(model: Model) -> None:
    with torch.inference_mode():
        for layer in model.runner._cache.layers:
            for plane in layer:
                plane.blocks.fill_(0xFF)
    table = model.pages.table(100)
    model.feed(table, 0, 50)
    assert same(model.feed(table, 50, 51), model.expected[50])
