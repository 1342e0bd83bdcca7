"""transformers, which kvchat depends on for other reasons, with the model folder that kvchat uses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kvchat.bench.peers.peer import ONE_SHOT_TOKENS, QUESTION, Peer
from kvchat.bench.peers.python_peer import PythonPeer

NAME = "transformers"

ONE_SHOT = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, threads, dtype, question, tokens = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
chat = [{"role": "user", "content": question}]
inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
reply = model.generate(**inputs, max_new_tokens=int(tokens), min_new_tokens=int(tokens), do_sample=False)
print(tokenizer.decode(reply[0]))
"""


def find(folder: Path, threads: int) -> list[Peer]:
    """The peer on a model folder. Raises PeerError when it does not work."""
    return [TransformersPeer(folder, threads)]


class TransformersPeer(PythonPeer):
    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder.absolute(), threads
        super().__init__(NAME, sys.executable, "transformers_engine", model=str(self._folder), threads=threads)
        self.version = f"{self.version}, {self.about['dtype']}"

    def one_shot_command(self) -> Sequence[str | Path]:
        arguments = (self._folder, str(self._threads), self.about["dtype"], QUESTION, str(ONE_SHOT_TOKENS))
        return (sys.executable, "-c", ONE_SHOT, *arguments)
