"""Which engines take part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kvchat.bench.peers import llama_cpp, openvino, transformers
from kvchat.bench.peers.peer import Peer, PeerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the peers are, as far as the user said."""

    llama_cpp: Path | None = None
    """The folder of llama.cpp's programs; None: the PATH."""
    ggufs: Sequence[Path] = ()
    """GGUF files of the model, used as they are."""
    quantize: Path | None = None
    """A GGUF file of the model to make those of llama.cpp's quantizations from."""
    openvino_python: Path


def find_peers(sources: Sources, model: Path, threads: int, stack: ExitStack) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are here, which the stack closes, and why each other one is not. Raises PeerError when there is
    no program to quantize with."""
    ggufs = [*sources.ggufs]
    if sources.quantize is not None:
        ggufs += llama_cpp.quantized(sources.llama_cpp, sources.quantize)
    finders: dict[str, Callable[[], list[Peer]]] = {
        llama_cpp.NAME: lambda: llama_cpp.find(sources.llama_cpp, ggufs, threads),
        openvino.NAME: lambda: openvino.find(sources.openvino_python, ggufs, threads),
        transformers.NAME: lambda: transformers.find(model, threads),
    }
    peers: list[Peer] = []
    missing: dict[str, str] = {}
    for name, find in finders.items():
        try:
            found = find()
        except PeerError as error:
            missing[name] = str(error)
            continue
        peers += found
        for peer in found:
            stack.callback(peer.close)
    return peers, missing
