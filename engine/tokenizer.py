"""Text to token ids and back, from the tokenizer files of a Hugging Face folder.

The `tokenizers` library encodes ordinary text only: it is loaded without its added tokens, so that no text can
reach a control token by accident. Control tokens are found here, and only where the caller looks for them
(`split`, `encode`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import tokenizers

from engine.errors import ModelError
from engine.locate import REPAIR

SPACE = "▁"
"""How SentencePiece vocabularies write a space."""

T = TypeVar("T")


class Piece(NamedTuple):
    """A stretch of a text: a control token with the whitespace it swallows, or ordinary text (`id` is None) with
    the leading space that the tokenizer writes in front of it."""

    text: str
    id: int | None


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    special: bool = False


class _TokenizerFile(msgspec.Struct):
    """tokenizer.json, without its truncation, padding and post-processor: prompts come complete from a template."""

    model: dict[str, Any]
    added_tokens: list[_AddedToken] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    version: str = "1.0"


class _EndTokens(msgspec.Struct):
    """What config.json and generation_config.json say of the end of a reply."""

    eos_token_id: int | list[int] | None = None


class Tokenizer:
    """The vocabulary of one model. Raises ModelError when a file of the folder is missing or damaged.

    It reads the two families that decoder models use: byte-level BPE, and SentencePiece style (a space written as
    U+2581, unknown characters as `<0xAB>` byte tokens).
    """

    vocab_size: int
    """One above the highest token id."""
    eos_ids: frozenset[int]
    """Every id that ends a reply: of config.json, generation_config.json and the tokenizer's own eos_token."""
    special_ids: frozenset[int]
    """Ids that are never shown as text, the eos_ids among them."""
    special_tokens: dict[str, str]
    """bos_token, eos_token and so on, under the names that chat templates use."""
    controls: dict[str, int]
    """Text and id of the control tokens: the added tokens that are more than whitespace."""
    control_ids: frozenset[int]
    control_pattern: re.Pattern[str]
    """Matches the text of any control token."""
    leading_space: bool
    """Whether ordinary text gets a space in front, which is then no part of a reply."""
    chat_template: str | None

    def __init__(self, folder: Path) -> None:
        path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
        if not path.is_file():
            raise ModelError(f"{folder} has no tokenizer.json; {REPAIR}")
        file = _read(path, _TokenizerFile)
        config = _read(config_path, dict[str, Any])
        self.special_tokens = _special_tokens(_read(folder / "special_tokens_map.json", dict[str, Any]) | config)
        with _reading(config_path):
            self.chat_template = _chat_template(folder / "chat_template.jinja", config)
            file.added_tokens += _config_tokens(config)
        with _reading(path):
            vocab = _vocab(file.model)
            self._added = _added_tokens(file.added_tokens, vocab, self.special_tokens.values())
            self._layout = {t.content: t.id for t in self._added.values() if not t.content.strip(f"{SPACE} \t\r\n")}
            self.controls = {t.content: t.id for t in self._added.values() if t.content not in self._layout}
            self._byte_level = any(step["type"] == "ByteLevel" for step in _steps(file.pre_tokenizer, file.decoder))
            self._take_prefix_over(file)
            self._plain = _plain_tokenizer(file, self.controls)
        if not self._byte_level and SPACE not in repr((file.normalizer, file.pre_tokenizer)):
            raise ModelError(f"{path} is neither a byte-level BPE nor a SentencePiece tokenizer; kvchat reads no other")
        self.control_ids = frozenset(self.controls.values())
        self.control_pattern = _any_of(self.controls)
        self._layout_pattern = _any_of(self._layout)
        self.vocab_size = max([*vocab.values(), *self._added], default=-1) + 1
        self.eos_ids = self._find_eos_ids(folder)
        self.special_ids = frozenset(t.id for t in self._added.values() if t.special) | self.eos_ids
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, control tokens in it recognised; nothing (no bos) is added."""
        return [i for p in self.split(text) for i in (self.encode_plain(p.text) if p.id is None else [p.id])]

    def encode_plain(self, text: str) -> list[int]:
        """Ids of ordinary text in the middle of a sequence: a control token's text is only characters here, and no
        leading space is written in front."""
        ids: list[int] = []
        at = 0
        for match in self._layout_pattern.finditer(text):
            ids += [*self._encode(text[at : match.start()]), self._layout[match[0]]]
            at = match.end()
        return ids + self._encode(text[at:])

    def split(self, text: str) -> list[Piece]:
        """`text` cut at its control tokens. `encode_plain` of the ordinary pieces, joined with the control ids, gives
        the ids that the model's own tokenizer gives for `text`."""
        pieces: list[Piece] = []
        at = 0
        for match in self.control_pattern.finditer(text):
            token, (start, end) = self._added[self.controls[match[0]]], match.span()
            if token.single_word and re.search(r"\w", text[max(0, start - 1) : start] + text[end : end + 1]):
                continue
            if token.lstrip:
                start = at + len(text[at:start].rstrip())
            if token.rstrip:
                end = len(text) - len(text[end:].lstrip())
            pieces += self._ordinary(text[at:start], first=at == 0)
            pieces.append(Piece(text[start:end], token.id))
            at = end
        return pieces + self._ordinary(text[at:], first=at == 0)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text, in UTF-8; part of a character for some, nothing for an id without a token."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._spell(token_id)
        return found

    def text(self, ids: Iterable[int]) -> str:
        """What `ids` spell, control tokens included and U+FFFD for what is not UTF-8: for diagnostics, not replies."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def canonical(self, text: str) -> str:
        """`text` in the Unicode form that its tokens will spell."""
        if self._plain.normalizer is not None:
            text = self._plain.normalizer.normalize_str(text)
        return text if self._byte_level else text.replace(SPACE, " ")

    def _ordinary(self, text: str, first: bool) -> list[Piece]:
        if not text:
            return []
        prefixed = self._prefix == "always" or (self._prefix == "first" and first)
        if prefixed and (self._prefix_doubles or text[0] not in f" {SPACE}"):
            text = " " + text
        return [Piece(text, None)]

    def _encode(self, text: str) -> list[int]:
        return self._plain.encode(text, add_special_tokens=False).ids if text else []

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            content = self._added[token_id].content
            return (content.replace(SPACE, " ") if content in self._layout else content).encode()
        spelling = self._plain.id_to_token(token_id)
        if spelling is None:
            return b""
        if self._byte_level:
            return bytes(map(_BYTES.__getitem__, spelling))
        if match := re.fullmatch("<0x([0-9A-F]{2})>", spelling):
            return bytes.fromhex(match[1])
        return spelling.replace(SPACE, " ").encode()

    def _find_eos_ids(self, folder: Path) -> frozenset[int]:
        named = self.special_tokens.get("eos_token")
        ids = {self.controls[named]} if named in self.controls else set()
        for name in ("config.json", "generation_config.json"):
            value = _read(folder / name, _EndTokens).eos_token_id
            ids.update(value if isinstance(value, list) else [] if value is None else [value])
        return frozenset(ids)

    def _take_prefix_over(self, file: _TokenizerFile) -> None:
        """Note when the tokenizer writes a space in front of a text, and switch that off in `file`: `split` does it,
        because text that continues a sequence must not get one."""
        self._prefix = "never"
        self._prefix_doubles = False  # also in front of text that starts with a space
        for step in _steps(file.pre_tokenizer):
            if step["type"] == "Metaspace":
                old_style = "always" if step.pop("add_prefix_space", True) else "never"
                self._prefix, step["prepend_scheme"] = step.get("prepend_scheme") or old_style, "never"
            elif step["type"] == "ByteLevel" and step.get("add_prefix_space"):
                self._prefix, step["add_prefix_space"] = "always", False
        normalizers = list(_steps(file.normalizer))
        if any(step["type"] == "Prepend" for step in normalizers):
            self._prefix, self._prefix_doubles = "always", True
            rest = [step for step in normalizers if step["type"] != "Prepend"]
            file.normalizer = {"type": "Sequence", "normalizers": rest}
        self.leading_space = self._prefix != "never"


def _byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE writes for bytes (GPT-2): printable Latin-1 stands for itself, and the other
    bytes, in order, for U+0100 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _byte_alphabet()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Any other error on the way is damage of the file; the tokenizers library raises nothing more specific."""
    try:
        yield
    except OSError as exc:
        raise ModelError(f"{exc.filename or path} cannot be read: {exc.strerror or exc}") from exc
    except Exception as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())
        raise ModelError(f"{path} is damaged ({reason}); {REPAIR}") from exc


def _read(path: Path, kind: type[T]) -> T:
    """The object in a JSON file of the folder; an empty one when there is no such file."""
    with _reading(path):
        return msgspec.json.decode(path.read_bytes() if path.exists() else b"{}", type=kind)


def _vocab(model: dict[str, Any]) -> dict[str, int]:
    """Token to id of a BPE model (a mapping) or a Unigram model (a list of token and score)."""
    vocab = model["vocab"]
    return vocab if isinstance(vocab, dict) else {token: i for i, (token, _) in enumerate(vocab)}


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    tokens = {}
    for name, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            tokens[name] = content
    return tokens


def _config_tokens(config: dict[str, Any]) -> list[_AddedToken]:
    listed = config.get("added_tokens_decoder", {}).items()
    return [msgspec.convert({**fields, "id": int(token_id)}, _AddedToken) for token_id, fields in listed]


def _added_tokens(listed: list[_AddedToken], vocab: dict[str, int], named: Iterable[str]) -> dict[int, _AddedToken]:
    """Added tokens by id, the first of several; bos, eos and so on are added tokens even if only their name says so."""
    tokens: dict[int, _AddedToken] = {}
    for token in [*listed, *(_AddedToken(vocab[name], name, special=True) for name in named if name in vocab)]:
        tokens.setdefault(token.id, token)
    return tokens


def _chat_template(path: Path, config: dict[str, Any]) -> str | None:
    """The template in chat_template.jinja, else in tokenizer_config.json: one, or the default of several with names."""
    if path.exists():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default") or next(iter(named.values()), None)
    return template


def _any_of(contents: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of `contents` at the leftmost place; nothing when there are none."""
    return re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))) or "(?!)")


def _steps(*pipelines: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The steps of normalizers, pre-tokenizers or decoders, sequences flattened."""
    for step in filter(None, pipelines):
        if step["type"] == "Sequence":
            yield from _steps(*(step.get("normalizers") or step.get("pretokenizers") or step.get("decoders") or []))
        else:
            yield step


def _plain_tokenizer(file: _TokenizerFile, controls: Iterable[str]) -> tokenizers.Tokenizer:
    """A tokenizer of ordinary text: no added tokens, and the vocabulary entries of control tokens out of reach.

    Those are renamed, and the merges that make them dropped. Nothing reaches an entry with a real space in its name,
    since both families write spaces otherwise.
    """
    hidden = frozenset(controls)
    model = file.model
    if isinstance(model["vocab"], list):
        model["vocab"] = [[f" {t}" if t in hidden else t, score] for t, score in model["vocab"]]
    else:
        model["vocab"] = {f" {t}" if t in hidden else t: i for t, i in model["vocab"].items()}
        pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
        model["merges"] = [pair for pair in pairs if hidden.isdisjoint((*pair, "".join(pair)))]
        if model.get("unk_token") in hidden:
            model["unk_token"] = f" {model['unk_token']}"
    file.added_tokens = []
    return tokenizers.Tokenizer.from_buffer(msgspec.json.encode(file))
