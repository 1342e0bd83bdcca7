"""A converted GGUF file computes what the model it came from computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf_maker import HIDDEN, TinyGGUF
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from engine.errors import ModelError
from kvchat.catalogue.folder import validate
from kvchat.catalogue.gguf import convert
from kvchat.catalogue.gguf_config import llama3_divisors
from kvchat.catalogue.progress import Progress, silent


def converted(tiny: TinyGGUF, tmp_path: Path) -> Path:
    tiny.write(tmp_path / "tiny.gguf")
    folder = tmp_path / "tiny"
    folder.mkdir()
    convert(tmp_path / "tiny.gguf", folder, silent)
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return content


def logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = model(torch.tensor([ids])).logits
    return result


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_converted_model_gives_the_logits_of_the_original(architecture: str, tied: bool, tmp_path: Path) -> None:
    tiny = TinyGGUF(architecture, tied=tied, head_dim=32 if architecture == "qwen3" else 16)
    folder = converted(tiny, tmp_path)
    original = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    weights = {name: torch.from_numpy(value) for name, value in tiny.weights().items()}
    missing, unexpected = original.load_state_dict(weights, strict=False)
    assert unexpected == [] and missing == (["lm_head.weight"] if tied else [])
    original.tie_weights()

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = list(range(40))
    assert torch.equal(logits(model.eval(), ids), logits(original.eval(), ids))
    validate(folder)


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [
        (GGMLQuantizationType.F32, torch.float32, 0.0),
        (GGMLQuantizationType.F16, torch.float16, 1e-3),
        (GGMLQuantizationType.BF16, torch.bfloat16, 5e-3),
        (GGMLQuantizationType.Q8_0, torch.float16, 1e-2),
        (GGMLQuantizationType.Q5_1, torch.float16, 5e-2),
        (GGMLQuantizationType.Q4_1, torch.float16, 1e-1),
        (GGMLQuantizationType.Q4_0, torch.float16, 1e-1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_tensors_keep_their_dtype_and_quantized_ones_become_float16(
    kind: GGMLQuantizationType, dtype: torch.dtype, tolerance: float, tmp_path: Path
) -> None:
    tiny = TinyGGUF(kind=kind)
    folder = converted(tiny, tmp_path)
    stored = load_file(folder / "model.safetensors")
    for name, value in tiny.weights().items():
        assert stored[name].dtype == (torch.float32 if value.ndim == 1 else dtype)
        assert np.abs(stored[name].float().numpy() - value).max() <= tolerance
    assert config_of(folder)["torch_dtype"] == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_transformers_own_gguf_reading_finds_the_same_weights(architecture: str, tmp_path: Path) -> None:
    folder = converted(TinyGGUF(architecture, kind=GGMLQuantizationType.Q4_1), tmp_path)
    model = AutoModelForCausalLM.from_pretrained(folder)
    theirs = load_gguf_checkpoint(str(tmp_path / "tiny.gguf"), return_tensors=True, model_to_load=model)["tensors"]
    ours = load_file(folder / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name].to(value.dtype)), name


def test_the_config_holds_what_the_metadata_says(tmp_path: Path) -> None:
    config = config_of(converted(TinyGGUF(metadata={"llama.rope.freq_base": 500000.0}), tmp_path))
    assert config["rope_theta"] == 500000.0
    assert config["rms_norm_eps"] == 1e-05
    assert config["max_position_embeddings"] == 128
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 16)
    assert config["rope_scaling"] is None


def test_every_control_token_that_ends_a_reply_is_an_end_id(tmp_path: Path) -> None:
    folder = converted(TinyGGUF(), tmp_path)
    for name in ("config.json", "generation_config.json"):
        ids = json.loads((folder / name).read_text())
        assert ids["bos_token_id"] == 1
        assert ids["eos_token_id"] == [2, 0]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"llama.rope.scaling.type": "none"}, None),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 2.0,
                "llama.rope.scaling.original_context_length": 64,
            },
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
        ),
    ],
    ids=["none", "linear", "yarn"],
)
def test_rope_scaling_comes_from_the_metadata(
    metadata: dict[str, Any], expected: dict[str, Any] | None, tmp_path: Path
) -> None:
    assert config_of(converted(TinyGGUF(metadata=metadata), tmp_path))["rope_scaling"] == expected


def test_llama3_rope_scaling_is_recovered_from_the_divisors_in_the_file(tmp_path: Path) -> None:
    llama32 = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    divisors = llama3_divisors(llama32, 500000.0, 32).astype(np.float32)
    metadata = {"llama.rope.freq_base": 500000.0}
    tiny = TinyGGUF(metadata=metadata, tensors={"rope_freqs.weight": divisors}, head_dim=64)
    folder = converted(tiny, tmp_path)
    assert config_of(folder)["rope_scaling"] == llama32

    rotary = AutoModelForCausalLM.from_pretrained(folder).model.rotary_emb
    plain = 500000.0 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(rotary.inv_freq.numpy(), plain / divisors, rtol=1e-5)


@pytest.mark.parametrize(
    ("tiny", "message"),
    [
        (TinyGGUF("gemma3"), "architecture 'gemma3' is not supported; llama, qwen2, qwen3 are"),
        (TinyGGUF(metadata={"split.count": 2}), "one part of a split model"),
        (TinyGGUF(metadata={"llama.rope.dimension_count": 8}), "only a part of each head is rotated"),
        (TinyGGUF(metadata={"llama.feed_forward_length": [96, 64]}), "differs from layer to layer"),
        (TinyGGUF(metadata={"llama.rope.scaling.type": "longrope"}), "rope scaling 'longrope' is not supported"),
        (TinyGGUF(metadata={"llama.attention.head_count": None}), "lacks 'llama.attention.head_count'"),
        (TinyGGUF(tensors={"rope_freqs.weight": np.full(8, 3.0, np.float32)}), "rope_freqs do not follow"),
        (
            TinyGGUF(tensors={"blk.0.ffn_gate_exps.weight": np.zeros((2, HIDDEN), np.float32)}),
            "tensor blk.0.ffn_gate_exps.weight belongs to a variant",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_converted_exactly_is_refused(tiny: TinyGGUF, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tiny\.gguf cannot be used: ") as refusal:
        converted(tiny, tmp_path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_cut_off_anywhere_is_one_clear_error(tmp_path: Path) -> None:
    whole = tmp_path / "whole.gguf"
    TinyGGUF().write(whole)
    content = whole.read_bytes()
    for size in (0, 3, 8, 20, 100, 2000, len(content) // 2, len(content) - 200):
        part = tmp_path / "part.gguf"
        part.write_bytes(content[:size])
        with pytest.raises(ModelError, match="damaged, cut off or no GGUF file"):
            convert(part, tmp_path, silent)


def test_progress_counts_every_byte_that_is_written(tmp_path: Path) -> None:
    TinyGGUF().write(tmp_path / "tiny.gguf")
    (tmp_path / "tiny").mkdir()
    reports: list[Progress] = []
    convert(tmp_path / "tiny.gguf", tmp_path / "tiny", reports.append)
    done = [report.done_bytes for report in reports if report.stage == "converting"]
    assert done == sorted(done)
    assert reports[-1].done_bytes == reports[-1].total_bytes
    assert reports[-1].total_bytes == sum(4 * value.size for value in TinyGGUF().weights().values())


def test_the_default_model_knows_the_capital_of_france(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(reply)
    assert reply[-1] == tokenizer.eos_token_id
