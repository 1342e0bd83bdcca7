"""A tiny random model with a chat template, and what the peers' programs really printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CONTEXT = 600


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, a vocabulary of single bytes, CONTEXT tokens of context."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("models") / "small"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    torch.manual_seed(5)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            eos_token_id=256,
            bos_token_id=None,
        )
    ).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def recorded() -> Path:
    """What llama.cpp's programs printed, run on a real model."""
    return Path(__file__).parent / "recorded"
