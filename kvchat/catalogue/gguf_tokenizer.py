"""The tokenizer inside a GGUF file, as tokenizer.json and tokenizer_config.json.

Two kinds exist: byte-level BPE ("gpt2"), whose rule for cutting text into words is named by tokenizer.ggml.pre, and
SentencePiece BPE ("llama"), whose merges follow from the scores of its tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from engine.errors import ModelError


class _WordRule(NamedTuple):
    """How a family of byte-level models cuts text before merging."""

    cuts: tuple[str, ...]
    """Regular expressions, each applied to the pieces that the one before left."""
    whole_words: bool = False
    """A word that is a token is taken as it is, without asking the merges; these families also begin with bos."""
    nfc: bool = False


_DIGIT, _REST = r"\p{N}", r"\s+(?!\S)|\s+"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_REST}"
_MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
    + _REST
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|{_DIGIT}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|{_REST}"
)
_LLAMA3 = _WordRule((_MODERN.format(numbers=r"\p{N}{1,3}"),), whole_words=True)
_QWEN2 = _WordRule((_MODERN.format(numbers=_DIGIT),), nfc=True)

WORD_RULES = {
    "gpt-2": _WordRule((_GPT2,)),
    "smollm": _WordRule((_DIGIT, _GPT2)),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _WordRule((_TEKKEN,), whole_words=True),
}

ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}

END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "</s>")
"""Control tokens that end a reply even where the file's eos id is another: a file can name only one."""


def write_tokenizer(metadata: Mapping[str, Any], folder: Path, context_length: int) -> list[int]:
    """Write the tokenizer's files and return the ids that end a reply, the file's own eos first.

    Raises ModelError for a tokenizer that cannot be reproduced exactly, KeyError for metadata that must be there.
    """
    kind = metadata["tokenizer.ggml.model"]
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"tokenizer {kind!r} is not supported; gpt2 (byte-level BPE) and llama (SentencePiece) are")
    texts: list[str] = metadata["tokenizer.ggml.tokens"]
    types: list[int] = metadata["tokenizer.ggml.token_type"]
    vocabulary = {text: index for index, text in enumerate(texts) if types[index] != TokenType.UNUSED}
    if kind == "gpt2":
        rule = _word_rule(metadata.get("tokenizer.ggml.pre"))
        tokenizer = _byte_level(rule, vocabulary, metadata["tokenizer.ggml.merges"])
        begins_with_bos = rule.whole_words
    else:
        tokenizer = _sentencepiece(metadata, texts, types, vocabulary)
        begins_with_bos = True
    controls = {text for text, index in vocabulary.items() if types[index] == TokenType.CONTROL}
    added = [text for text, index in vocabulary.items() if text in controls or types[index] == TokenType.USER_DEFINED]
    tokenizer.add_tokens([AddedToken(text, special=text in controls, normalized=False) for text in added])

    ids = {role: metadata.get(f"tokenizer.ggml.{key}_token_id") for key, role in ROLES.items()}
    roles = {role: texts[index] for role, index in ids.items() if index is not None}
    if metadata.get("tokenizer.ggml.add_bos_token", begins_with_bos) and "bos_token" in roles:
        bos = roles["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, ids["bos_token"])]
        )
    tokenizer.save(str(folder / "tokenizer.json"))

    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context_length, **roles}
    if template := metadata.get("tokenizer.chat_template"):
        config["chat_template"] = template
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")

    ends = [vocabulary[text] for text in END_TOKENS if text in controls]
    return list(dict.fromkeys([metadata["tokenizer.ggml.eos_token_id"], *ends]))


def _word_rule(name: str | None) -> _WordRule:
    if name not in WORD_RULES:
        raise ModelError(f"its tokenizer cuts words by the rule {name!r}; known rules are {', '.join(WORD_RULES)}")
    return WORD_RULES[name]


def _byte_level(rule: _WordRule, vocabulary: dict[str, int], merges: list[str]) -> Tokenizer:
    pairs = [(left, right) for left, right in (merge.split(" ", 1) for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=rule.whole_words))
    cuts = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in rule.cuts]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _sentencepiece(
    metadata: Mapping[str, Any], texts: list[str], types: list[int], vocabulary: dict[str, int]
) -> Tokenizer:
    scores: list[float] = metadata["tokenizer.ggml.scores"]
    pieces = {text: index for text, index in vocabulary.items() if types[index] == TokenType.NORMAL}
    pairs = ((text[:cut], text[cut:]) for text in pieces for cut in range(1, len(text)))
    # SentencePiece joins the neighbours whose joint token scores best; a list of merges says so by its order.
    merges = sorted(
        (pair for pair in pairs if pair[0] in pieces and pair[1] in pieces),
        key=lambda pair: -scores[pieces[pair[0] + pair[1]]],
    )
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=merges,
            unk_token=texts[metadata.get("tokenizer.ggml.unknown_token_id", 0)],
            fuse_unk=True,
            byte_fallback=TokenType.BYTE in types,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    decode = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), tokenizer.normalizer])
        decode.append(decoders.Strip(content=" ", left=1, right=0))
    tokenizer.decoder = decoders.Sequence(decode)
    return tokenizer
