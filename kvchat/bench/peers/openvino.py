"""OpenVINO GenAI, from whatever interpreter has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvchat.bench.peers.derived import derived
from kvchat.bench.peers.peer import ONE_SHOT_TOKENS, QUESTION, Peer, PeerError
from kvchat.bench.peers.processes import run
from kvchat.bench.peers.python_peer import PythonPeer

NAME = "OpenVINO GenAI"

SAVE = """
import sys
import openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""

ONE_SHOT = """
import sys
import openvino_genai
model, threads, question, tokens = sys.argv[1:]
pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=int(threads))
print(pipeline.generate(question, max_new_tokens=int(tokens), ignore_eos=True))
"""


def find(python: str | Path, ggufs: Sequence[Path], threads: int) -> list[Peer]:
    """The peer on the first GGUF file. Raises PeerError when it is not here or does not work."""
    try:
        run([python, "-c", "import openvino_genai"])
    except PeerError:
        raise PeerError(
            "not found: pip install openvino-genai in any environment; --openvino-python names its interpreter"
        ) from None
    if not ggufs:
        raise PeerError("it needs a GGUF file of the model: --gguf or --quantize")
    return [OpenVinoPeer(python, ggufs[0], threads)]


class OpenVinoPeer(PythonPeer):
    """Starts from the model that OpenVINO saved of the GGUF file, which loads in half the time."""

    def __init__(self, python: str | Path, gguf: Path, threads: int) -> None:
        self._model = derived(gguf, "openvino", lambda folder: _save(python, gguf, folder))
        self._threads = threads
        super().__init__(NAME, python, "openvino_engine", model=str(self._model), threads=threads)
        self.version = f"{self.version}, {gguf.name}"

    def one_shot_command(self) -> Sequence[str | Path]:
        return (self._python, "-c", ONE_SHOT, self._model, str(self._threads), QUESTION, str(ONE_SHOT_TOKENS))


def _save(python: str | Path, gguf: Path, folder: Path) -> None:
    folder.mkdir()
    link = folder / "model.gguf"  # it saves beside the file, and that folder may be no place to write
    link.symlink_to(gguf.absolute())
    run([python, "-c", SAVE, link])
    link.unlink()
