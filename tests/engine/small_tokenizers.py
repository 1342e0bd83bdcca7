"""Tokenizers of the families that decoder models use, trained in a moment, and chat templates for them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine.tokenizer import Tokenizer as EngineTokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the other foxes say hello to the dog and the world.",
    "User: what is the answer?\nAssistant: The answer is 42; you are welcome.\n\nSystem: you are a helpful assistant.",
    "héllo wörld 你好世界 こんにちは 🙂🎉 naïve café",
    "for i in range(10):\n    print(i)  # indented\n",
] * 4

SPECIAL = [
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
TAGS = ["<think>", "</think>"]
CONTROLS = [*SPECIAL, *TAGS]

CHATML = """\
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\nYou are terse.<|im_end|>\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
HEADERS = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}
"""
INSTRUCT = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' + message.content + ' [/INST]' }}
    {%- else %}
        {%- generation %}
            {{- ' ' + message.content + eos_token }}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}
"""
THINKING = """\
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "instruct": INSTRUCT, "thinking": THINKING}

WORDS = ["hello", " world", "\n", "  ", "é", "e\u0301", "你好", "🙂", "im_end", "|>", "<|", "\U000f0000", "\U000f0001"]
HOSTILE_TEXTS = st.lists(st.sampled_from([*WORDS, *CONTROLS]), max_size=6).map(lambda words: "the" + "".join(words))
"""Text that tries to write control tokens, in pieces that also join to some."""

_UNPREFIXED = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
_DECODER = decoders.Sequence([*_UNPREFIXED, decoders.Strip(" ", 1, 0)])
_BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _sentencepiece(prepend_scheme: str) -> Tokenizer:
    """As in Llama 2's newer files."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(_UNPREFIXED) if prepend_scheme == "never" else _DECODER
    special = ["<unk>", "<s>", "</s>", *_BYTE_TOKENS]
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=False)
    return _edited(tokenizer, added_tokens=[])


def _sentencepiece_legacy() -> Tokenizer:
    """As in Llama 2's older files: the normalizer writes the spaces."""
    tokenizer = _sentencepiece("always")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _edited(tokenizer, pre_tokenizer=None)


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = _DECODER
    special = [*SPECIAL, *_BYTE_TOKENS]
    trainer = trainers.UnigramTrainer(vocab_size=480, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return _edited(tokenizer, added_tokens=[], model=model | {"byte_fallback": True})


def _edited(tokenizer: Tokenizer, **parts: Any) -> Tokenizer:
    """Training makes added tokens of the byte tokens, for one; real files have those in the vocabulary only."""
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | parts))


FAMILIES = {
    "byte-level": _byte_level,
    "metaspace-first": lambda: _sentencepiece("first"),
    "metaspace-always": lambda: _sentencepiece("always"),
    "metaspace-never": lambda: _sentencepiece("never"),
    "legacy": _sentencepiece_legacy,
    "unigram": _unigram,
}


def make_folder(
    folder: Path, family: str = "byte-level", tokens: list[AddedToken] | None = None, **config: Any
) -> Path:
    """A folder with tokenizer.json, tokenizer_config.json (with `config` on top) and config.json."""
    tokenizer = FAMILIES[family]()
    if tokens is None:
        tokens = [AddedToken(text, special=True) for text in SPECIAL] + [
            AddedToken(text, normalized=False) for text in TAGS
        ]
    for token in tokens:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


@cache
def tokenizer_of(family: str = "byte-level", template: str | None = CHATML) -> EngineTokenizer:
    with TemporaryDirectory() as folder:
        return EngineTokenizer(make_folder(Path(folder), family, chat_template=template))
