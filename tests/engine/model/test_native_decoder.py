"""The engine on packed weights: close to float32, and the same whichever way a token is computed."""

from __future__ import annotations

import copy
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from reference_models import KINDS, logits_of, save
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from engine.api import Finished, GenerationRequest, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError
from engine.runner import Chunk, ModelRunner
from kernels import cpu
from kernels.cpu import packing

pytest.importorskip("numba")

from kernels.cpu.tier import VARIABLE, tier

TOKENS = 100
BLOCK = 16
NOISE = 0.05
"""Of a row of logits, relative: activations are rounded to 8 bits, and either way where sums are in another order."""


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels(model_cache: Path) -> None:
    """Compiled once for every version of them on this machine."""
    cpu.load(model_cache / "kernels", lambda: None)


def save_with_wide_heads(kind: str, folder: Path) -> torch.nn.Module:
    """Heads of 16, which the native kernels can run."""
    config = copy.deepcopy(KINDS[kind])
    config.head_dim = 16
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, kind, config)
        return save(kind, folder)


def load(folder: Path, **settings: Any) -> ModelRunner:
    defaults = {"weights": "int8", "kv_memory": 8 << 20, "block_size": BLOCK, "threads": 1}
    return ModelRunner(folder, EngineConfig(model=folder, **(defaults | settings)))


def off(ours: Tensor, theirs: Tensor) -> float:
    """Relative difference, without what all logits have in common."""
    ours, theirs = ours - ours.mean(), theirs - theirs.mean()
    return ((ours - theirs).norm() / theirs.norm()).item()


class Model:
    """One model twice: with transformers in float32, and with the native kernels; every unused key and value NaN."""

    def __init__(self, kind: str, folder: Path, kv_dtype: str) -> None:
        self.peer = save_with_wide_heads(kind, folder)
        self.runner = load(folder, kv_dtype=kv_dtype)
        with torch.inference_mode():
            for layer in self.runner._cache.layers:
                for plane in layer:
                    plane.blocks.fill_(0xFF)
        self._free = list(range(self.runner.num_blocks))
        random.Random(4).shuffle(self._free)
        self.tokens = [random.Random(9).randrange(320) for _ in range(TOKENS)]
        self.float32 = logits_of(self.peer, self.tokens)
        table = self.table()
        self.expected = {end: self.feed(self.table(), 0, end).clone() for end in (1, 20, 60, 99, TOKENS)}
        assert len(table) == -(-TOKENS // BLOCK)

    def table(self, tokens: int = TOKENS) -> list[int]:
        return [self._free.pop() for _ in range(-(-tokens // BLOCK))]

    def feed(self, table: list[int], start: int, end: int) -> Tensor:
        return self.runner.run([Chunk(self.tokens[start:end], start, table, True)])[0]


@pytest.fixture(
    scope="module", params=[(kind, "float32") for kind in KINDS] + [("gqa", "bfloat16"), ("gqa", "int8")], ids=str
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(request.param[0], tmp_path_factory.mktemp("model"), request.param[1])


def test_eight_bits_are_close_to_float32(model: Model) -> None:
    assert model.runner.info.weights == "int8"
    for end, logits in model.expected.items():
        assert off(logits, model.float32[end - 1]) < 0.15


@pytest.mark.parametrize("size", [1, 7, 16, 17, 40])
def test_prefill_in_chunks(model: Model, size: int) -> None:
    table = model.table()
    for start in range(0, 60, size):
        logits = model.feed(table, start, min(start + size, 60))
    assert off(logits, model.expected[60]) < NOISE


def test_decode_behind_a_prefill(model: Model) -> None:
    table = model.table()
    model.feed(table, 0, 90)
    for position in range(90, TOKENS):
        logits = model.feed(table, position, position + 1)
    assert off(logits, model.expected[TOKENS]) < NOISE


@pytest.mark.parametrize("start", [58, 57, 48])
def test_prefill_behind_a_cached_prefix_that_ends_inside_a_block(model: Model, start: int) -> None:
    first = model.table()
    model.feed(first, 0, TOKENS)
    second = first[:3] + model.table(TOKENS - 3 * BLOCK)
    model.runner.copy_blocks([(first[3], second[3])])
    assert off(model.feed(second, start, TOKENS), model.expected[TOKENS]) < NOISE
    assert off(model.feed(first, TOKENS - 1, TOKENS), model.expected[TOKENS]) < NOISE


def test_decodes_and_prefills_of_any_length_in_one_step(model: Model) -> None:
    ends = [1, 20, 60, 99, TOKENS]
    tables = [model.table() for _ in ends]
    for table, end in zip(tables, ends, strict=True):
        if end > 1:
            model.feed(table, 0, end - 1)
    chunks = [Chunk(model.tokens[end - 1 : end], end - 1, table, True) for table, end in zip(tables, ends, strict=True)]
    chunks.insert(1, Chunk(model.tokens[:33], 0, model.table(), False))
    chunks.insert(3, Chunk(model.tokens[:60], 0, model.table(), True))
    logits = model.runner.run(chunks)
    assert len(logits) == 6
    for row, end in zip(logits, [1, 20, 60, 60, 99, TOKENS], strict=True):
        assert off(row, model.expected[end]) < NOISE


# Which weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_with_wide_heads("gqa", folder)
    return folder


@pytest.fixture
def own_folder(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "own", ignore=shutil.ignore_patterns("packed-*")))


def four_bit(weight: Tensor) -> Tensor:
    """Brought to GGUF's Q4_1 and stored in float16, as a converted file is."""
    groups = weight.unflatten(1, (-1, packing.GROUP))
    least, most = groups.aminmax(dim=-1, keepdim=True)
    scale, offset = ((most - least) / 15).half().float(), least.half().float()
    return (((groups - offset) / scale).round() * scale + offset).flatten(1).half()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (lambda name: False, "int8"),
        (lambda name: "norm" not in name, "int4"),
        (lambda name: "proj" in name and "down" not in name, "int4 + int8"),
    ],
)
def test_auto_takes_four_bits_for_weights_that_they_hold(
    tmp_path: Path, wanted: Callable[[str], bool], expected: str
) -> None:
    torch.manual_seed(2)
    LlamaForCausalLM(config_with(hidden_size=96, initializer_range=0.3)).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {name: four_bit(tensors[name]) for name in tensors if wanted(name)}, path)
    runner = load(tmp_path, weights="auto")
    assert runner.info.weights == expected
    # What the weights stand for is what torch computes with: only activations are rounded.
    exact = load(tmp_path, weights="bf16", dtype="float32")
    table, tokens = [3, 1, 0, 2], list(range(50))
    ours, theirs = (each.run([Chunk(tokens, 0, table, True)])[0] for each in (runner, exact))
    assert off(ours, theirs) < (0.15 if "int8" in expected else NOISE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weights": "bf16", "dtype": "float32"}, "float32"),
        ({"weights": "bf16", "dtype": "bfloat16"}, "bfloat16"),
        ({"weights": "auto", "dtype": "float32"}, "float32"),
        ({"weights": "int8", "dtype": "float32"}, "int8"),
        ({"weights": "int4"}, "int4 + int8"),
    ],
)
def test_native_kernels_run_where_they_are_asked_for(folder: Path, settings: dict[str, str], expected: str) -> None:
    assert load(folder, **settings).info.weights == expected


def test_fewer_bits_are_fewer_bytes(folder: Path) -> None:
    sizes = [load(folder, weights=weights, dtype="float32").info.weight_bytes for weights in ("int4", "int8", "bf16")]
    assert sizes[0] < sizes[1] < sizes[2]


def test_packing_is_told_of_the_first_time(own_folder: Path) -> None:
    heard: list[str] = []
    for _ in range(2):
        heard.append("a start")
        config = EngineConfig(model=own_folder, weights="int8", kv_memory=1 << 20, threads=1)
        ModelRunner(own_folder, config, lambda text, fraction: heard.append(text))
    packed = "packing the weights (once)"
    assert [text for text in heard if text in ("a start", packed)] == ["a start", packed, packed, packed, "a start"]


def config_with(**changes: Any) -> LlamaConfig:
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 6, "head_dim": 16, "vocab_size": 320}
    return LlamaConfig(**(sizes | {"num_hidden_layers": 1, "max_position_embeddings": 64} | changes))


@pytest.mark.parametrize(
    ("changes", "settings", "why"),
    [
        ({}, {"kv_dtype": "float16"}, "the KV cache must be in bfloat16, float32, int8 or int4"),
        ({}, {"kv_dtype": "int4"}, "head_dim is 16, no multiple of 32"),
        ({"intermediate_size": 90}, {}, "intermediate_size is 90, no multiple of 16"),
        ({"head_dim": 8}, {}, "head_dim is 8, no multiple of 16"),
        ({}, {"block_size": 10}, "block_size is 10, no multiple of 16"),
    ],
)
def test_asked_for_where_they_cannot_be_is_one_line_and_auto_does_without(
    tmp_path: Path, changes: dict[str, int], settings: dict[str, Any], why: str
) -> None:
    LlamaForCausalLM(config_with(**changes)).save_pretrained(tmp_path)
    for weights in ("int8", "int4"):
        with pytest.raises(ConfigError) as error:
            load(tmp_path, weights=weights, **settings)
        assert str(error.value).startswith(f"weights '{weights}' need the native kernels, which cannot be used here")
        assert why in str(error.value) and "\n" not in str(error.value)
    assert load(tmp_path, weights="auto", **settings).info.weights in ("float32", "bfloat16")


def test_without_numba_torch_computes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert load(folder, weights="auto").info.weights in ("float32", "bfloat16")
    with pytest.raises(ConfigError, match="Numba cannot be imported"):
        load(folder)


@pytest.fixture
def fresh_tier() -> Iterator[None]:
    tier.cache_clear()
    yield
    tier.cache_clear()


@pytest.mark.parametrize("name", ["avx9", "Portable"])
def test_a_tier_that_cannot_be_had_is_one_line(
    folder: Path, name: str, fresh_tier: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, name)
        with pytest.raises(ConfigError, match=rf"^{VARIABLE} is '{name}', but this CPU has [\w, ]+portable$"):
            load(folder)


# The engine as a whole


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A model with the tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("chatty")
    torch.manual_seed(5)
    vocab = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    config = config_with(
        vocab_size=vocab, num_key_value_heads=2, num_hidden_layers=2, max_position_embeddings=512, initializer_range=0.5
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_model / name, folder)
    return folder


BLOCK_BYTES = 2 * 2 * 2 * 16 * 4 * BLOCK
"""K and V, 2 layers, 2 KV heads of 16 float32 values."""
REPLY = 20


@pytest.mark.parametrize(
    ("settings", "together"),
    [
        pytest.param({"prefix_caching": False}, 1, id="alone"),
        pytest.param({"max_batch_tokens": 20}, 1, id="in small chunks"),
        pytest.param({}, 1, id="behind a shared prefix"),
        pytest.param({"prefix_caching": False}, 6, id="all at once"),
        pytest.param({"max_batch_tokens": 33}, 6, id="all at once, in small chunks"),
        pytest.param({"kv_memory": 14 * BLOCK_BYTES}, 6, id="with preemptions"),
        pytest.param({"threads": 2}, 3, id="on two threads"),
    ],
)
def test_each_greedy_token_is_the_best_however_it_was_computed(
    chatty: Path, settings: dict[str, Any], together: int
) -> None:
    """The best, or as good within the noise, by the logits of one prefill of all that was before it."""
    defaults = {"max_batch_tokens": 64, "max_sequences": 8, "threads": 1, "kv_memory": 64 * BLOCK_BYTES}
    config = EngineConfig(model=chatty, weights="int8", kv_dtype="float32", **(defaults | settings))
    engine = Engine(config)
    assert engine.info.weights == "int8"
    source = random.Random(5)
    persona = [source.randrange(256) for _ in range(36)]
    prompts = [[*persona, *(source.randrange(256) for _ in range(10 + i))] for i in range(6)]
    params = SamplingParams(temperature=0, max_tokens=REPLY, ignore_eos=True)
    done: list[Finished] = []
    for first in range(0, len(prompts), together):
        requests = [GenerationRequest(tuple(prompt), params) for prompt in prompts[first : first + together]]
        done += engine.generate(requests)
    judge = load(chatty, kv_dtype="float32")
    ends = sorted(engine.tokenizer.eos_ids)
    for prompt, reply in zip(prompts, done, strict=True):
        assert len(reply.token_ids) == REPLY
        for position, token in enumerate(reply.token_ids):
            before = [*prompt, *reply.token_ids[:position]]
            logits = judge.run([Chunk(before, 0, list(range(8)), True)])[0].clone()
            noise = 4 * NOISE * logits.std()
            logits[ends] = -torch.inf
            assert logits.max() - logits[token] < noise
    if config.prefix_caching and together == 1:
        assert all(reply.metrics.cached_tokens >= 32 for reply in done[1:])
    if "kv_memory" in settings:
        assert sum(reply.metrics.preemptions for reply in done) > 0
