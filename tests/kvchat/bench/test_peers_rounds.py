"""The order of measurements, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.bench.draw import Draw
from kvchat.bench.peers.cells import FULL, QUICK, Decode, FirstTokenBehind, Prefill
from kvchat.bench.peers.peer import PeerError, Prompt
from kvchat.bench.peers.report import Failure, Row
from kvchat.bench.peers.rounds import measure


class CountingPeer:
    """Answers 1, 2, 3, ... and remembers the prompts."""

    version = "1"

    def __init__(self, name: str, log: list[str], fails: bool = False) -> None:
        self.name, self._log, self._fails = name, log, fails
        self.prompts: list[Prompt] = []
        self.pairs: list[tuple[Prompt, Prompt]] = []

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        self._log.append(f"{self.name} decode")
        self.prompts += prompts
        return float(len(self.prompts))

    def prefill(self, prompt: Prompt) -> float:
        self._log.append(f"{self.name} prefill")
        if self._fails:
            raise PeerError("no memory")
        return 1.0

    def first_token_behind(self, first: Prompt, second: Prompt) -> float:
        self.pairs.append((first, second))
        return 0.25

    def one_shot(self) -> float:
        return 1.0

    def peak_memory(self, prompt: Prompt, steps: int) -> int:
        return 1 << 20

    def close(self) -> None:
        pass


def run(peers: Sequence[CountingPeer], *cells: Decode | Prefill | FirstTokenBehind) -> tuple[list[Row], list[Failure]]:
    return measure(peers, cells, rounds=2, seed=0, vocab_size=1000, on_progress=lambda stage, done: None)


def test_every_peer_is_measured_in_a_cell_before_the_next_cell_and_round() -> None:
    log: list[str] = []
    run([CountingPeer("a", log), CountingPeer("b", log)], Decode(4), Prefill(4))
    assert log == ["a decode", "b decode", "a prefill", "b prefill"] * 3


def test_the_warming_round_is_not_counted() -> None:
    [row], _ = run([CountingPeer("a", [])], Decode(4))
    assert row.values == {"a": [2.0, 3.0]}


def test_all_peers_get_the_same_prompts_and_every_round_new_ones() -> None:
    peers = [CountingPeer("a", []), CountingPeer("b", [])]
    run(peers, Decode(8, sequences=2))
    assert peers[0].prompts == peers[1].prompts
    assert len({tuple(prompt) for prompt in peers[0].prompts}) == 3 * 2
    assert {len(prompt) for prompt in peers[0].prompts} == {8}


def test_two_conversations_share_exactly_the_persona() -> None:
    peer = CountingPeer("a", [])
    [row], _ = run([peer], FirstTokenBehind(shared=100, new=24))
    for first, second in peer.pairs:
        assert first[:100] == second[:100] and first[100:] != second[100:]
        assert len(first) == len(second) == 124
    assert row.values == {"a": [250.0, 250.0]} and row.unit == "ms"


def test_a_peer_that_fails_in_a_cell_is_not_asked_again_and_has_no_value() -> None:
    log: list[str] = []
    [decode, prefill], failures = run(
        [CountingPeer("a", log, fails=True), CountingPeer("b", log)], Decode(4), Prefill(4)
    )
    assert log.count("a prefill") == 1 and log.count("b prefill") == 3
    assert failures == [Failure("a", "prefill, 4", "no memory")]
    assert set(prefill.values) == {"b"} and set(decode.values) == {"a", "b"}


def test_random_prompts_are_ordinary_tokens_decided_by_the_seed() -> None:
    prompt = Draw("seed", 1000)(200)
    assert prompt == Draw("seed", 1000)(200) != Draw("other", 1000)(200)
    assert all(100 < token < 900 for token in prompt)


def test_no_two_cells_have_one_name() -> None:
    for cells in (FULL, QUICK):
        assert len({cell.name for cell in cells}) == len(cells)
