"""Loads as they come: requests of several kinds, at random times, with what they have in common."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice, takewhile

from engine.api import GenerationRequest, SamplingParams
from kvchat.bench.draw import Draw
from kvchat.bench.load import Arrival, log_uniform

SIZED_FOR = 4096
"""Tokens of context that the lengths are for; where there is less they shrink with it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind; lengths in tokens, from and to."""

    prefix: tuple[int, int]
    """What some of them begin with."""
    sharing: int | None
    """How many in a row begin alike; None: all."""
    own: tuple[int, int]
    reply: tuple[int, int]


QUESTION = Kind(prefix=(300, 300), sharing=None, own=(16, 120), reply=(16, 96))
"""Behind one persona."""
DOCUMENT = Kind(prefix=(1200, 3000), sharing=3, own=(16, 48), reply=(32, 96))
"""Three questions about each."""
TEXT = Kind(prefix=(0, 0), sharing=1, own=(64, 64), reply=(1200, 1200))


@dataclass(frozen=True, slots=True)
class Mix:
    about: str
    kinds: Mapping[Kind, float]
    """What arrives at random times, and how often each in comparison."""
    rate: float
    """Arrivals a second, unless asked otherwise."""
    text: bool = False
    """A long text is written from the beginning on."""


MIXES = {
    "chat": Mix("short questions behind one persona", {QUESTION: 1.0}, rate=4.0),
    "documents": Mix("three questions about each of several documents", {DOCUMENT: 1.0}, rate=0.5),
    "writer": Mix("one long text", {}, rate=0.0, text=True),
    "blend": Mix(
        "a long text, and questions beside it, one in four about a document", {QUESTION: 3, DOCUMENT: 1}, 1.5, True
    ),
}


REQUESTS, QUICK_REQUESTS = 40, 8
QUICK_SCALE = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """How much of a mix arrives: so many requests, or those of so many seconds."""

    mix: Mix
    rate: float
    requests: int | None = None
    seconds: float | None = None
    scale: float = 1.0
    """Of all lengths."""

    @classmethod
    def of(
        cls,
        mix: str,
        quick: bool = False,
        rate: float | None = None,
        requests: int | None = None,
        seconds: float | None = None,
    ) -> Load:
        """One of MIXES, as it is unless said otherwise."""
        if requests is None and seconds is None:
            requests = QUICK_REQUESTS if quick else REQUESTS
        return cls(MIXES[mix], rate or MIXES[mix].rate, requests, seconds, QUICK_SCALE if quick else 1.0)

    def __str__(self) -> str:
        return self.mix.about + (f", at {self.rate:g} requests a second" if self.mix.kinds else "")

    def arrivals(self, context: int, vocab_size: int, seed: str) -> list[Arrival]:
        """In the order of their times; the same seed gives the same. Lengths are for a model with a `context` of
        SIZED_FOR tokens or more, and shorter for others."""
        source, draw = random.Random(seed), Draw(seed, vocab_size)
        scale = self.scale * min(1.0, context / SIZED_FOR)
        makers = {kind: _requests(kind, scale, source, draw) for kind in (*self.mix.kinds, TEXT)}
        arrivals = [Arrival(0.0, next(makers[TEXT]))] if self.mix.text else []
        if self.mix.kinds:
            kinds, weights = list(self.mix.kinds), list(self.mix.kinds.values())
            for at_s in self._times(source):
                [kind] = source.choices(kinds, weights)
                arrivals.append(Arrival(at_s, next(makers[kind])))
        return arrivals

    def _times(self, source: random.Random) -> Iterator[float]:
        times = poisson(self.rate, source)
        if self.seconds is not None:
            times = takewhile(lambda at_s: at_s < self.seconds, times)  # type: ignore[operator]
        return islice(times, self.requests)


def poisson(rate: float, source: random.Random) -> Iterator[float]:
    """Times of independent arrivals, the first at once and `rate` a second on average, without end."""
    now = 0.0
    while True:
        yield now
        now += source.expovariate(rate)


def _requests(kind: Kind, scale: float, source: random.Random, draw: Draw) -> Iterator[GenerationRequest]:
    def length(between: tuple[int, int]) -> int:
        return max(2, round(scale * log_uniform(source, *between)))

    prefix: list[int] = []
    for number in count():
        if kind.prefix[1] and (number == 0 or (kind.sharing and number % kind.sharing == 0)):
            prefix = draw(length(kind.prefix))
        # Replies of a fixed length: what a profile changes must not change the work.
        sampling = SamplingParams(temperature=0, max_tokens=length(kind.reply), ignore_eos=True)
        yield GenerationRequest((*prefix, *draw(length(kind.own))), sampling)
