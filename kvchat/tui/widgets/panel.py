"""The live panel: what the engine does, as numbers and as a map of its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from engine.api import EngineStats, Metrics, ModelInfo
from kvchat.diagnosis import Reading, diagnose
from kvchat.tui.format import NOTHING, count, percent, printable, rate, seconds, shorten, size
from kvchat.tui.responsiveness import LAG_LIMIT_S, Responsiveness
from kvchat.tui.widgets.backdrop import Backdrop
from kvchat.tui.widgets.block_map import (
    CACHED,
    FREE,
    OTHER,
    OWN,
    OWNERS,
    SHARED,
    BlockMap,
    Owner,
    count_owners,
    own_code,
)
from kvchat.tui.widgets.lines import Lines
from kvchat.tui.widgets.meters import bar, charted, quiet, row, scale, sparkline
from kvchat.tui.widgets.tab_bar import BADGES

PanelMode = Literal["full", "compact", "off", "debug"]


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the panel shows, at one moment."""

    stats: EngineStats = EngineStats()
    model: ModelInfo | None = None
    conversation_id: str = ""
    persona: str = ""
    metrics: Metrics | None = None
    """Of the running or last reply of the conversation that is shown."""
    context_tokens: int = 0
    speeds: Sequence[float] = ()
    """Tokens/s of the engine lately, oldest first."""
    ttfts: Sequence[float] = ()
    """Of the last replies of any tab, in seconds, oldest first."""
    tpots: Sequence[float] = ()
    owner_names: Sequence[str] = ()
    """What to call each of `stats.owners`."""
    waiting: Sequence[tuple[str, str]] = ()
    """The tabs whose replies wait, by title, and what for."""
    responsiveness: Responsiveness | None = None
    """Of the interface; only where it is to be shown."""

    @property
    def speed(self) -> float | None:
        """Tokens/s; the last snapshot of an engine that became idle still has its last speed."""
        return self.stats.tokens_per_s if self.stats.running else None

    @property
    def own_code(self) -> int | None:
        return own_code(self.stats, self.conversation_id)

    def owners(self) -> dict[Owner, int]:
        return count_owners(self.stats.block_map, self.own_code)


Draw = Callable[[Vitals, int], Sequence[Content]]
"""Lines of so many columns."""


class Readout(Lines):
    """Some lines drawn from the vitals."""

    def __init__(self, draw: Draw, classes: str = "") -> None:
        super().__init__(classes)
        self._draw = draw
        self.vitals = Vitals()

    def show(self, vitals: Vitals) -> None:
        """Draw these from now on."""
        self.vitals = vitals
        self.redraw()

    def lines(self, width: int) -> Sequence[Content]:
        return self._draw(self.vitals, width)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self.lines(width))


class Panel(VerticalScroll, Backdrop, can_focus=False):
    """Everything, at the right side of the screen; to debug, the interface instead of the KV blocks.

    Two widgets and no more: all of them are laid out anew whenever a reply grows.
    """

    def compose(self) -> ComposeResult:
        yield Readout(_everything)
        yield BlockMap()

    def show(self, vitals: Vitals) -> None:
        """Show these numbers."""
        self.query_one(Readout).show(vitals)
        owners = list(zip(vitals.stats.owners, vitals.owner_names, strict=True))
        self.query_one(BlockMap).show(vitals.stats.block_map, vitals.own_code, owners)


class PanelStrip(Readout):
    """The same in two lines, above the footer; to debug it stands in where the panel has no space."""

    def __init__(self, classes: str) -> None:
        super().__init__(_strip, classes)


def _everything(vitals: Vitals, width: int) -> Sequence[Content]:
    lines = []
    for title, draw in _sections(vitals):
        lines += [Content.styled(title, "bold $text-muted"), *draw(vitals, width), Content("")]
    return lines


def _sections(vitals: Vitals) -> Iterator[tuple[str, Draw]]:
    if vitals.responsiveness:
        yield "Responsiveness", _responsiveness
    yield "This tab", _tab
    yield "Engine", _engine
    if vitals.waiting:
        yield "Queue", _waiting
    yield "Model", _model
    if not vitals.responsiveness:
        yield "KV blocks", _pool


def _responsiveness(vitals: Vitals, width: int) -> Sequence[Content]:
    now = vitals.responsiveness or Responsiveness()
    lag, limit = now.lag, round(LAG_LIMIT_S * 1000)
    style = "$warning" if lag.p95 > LAG_LIMIT_S else "$success"
    return [
        row("lag p50", seconds(lag.p50), width),
        row("lag max", seconds(lag.max), width),
        row("lag p95", f"{seconds(lag.p95)} / {limit} ms", width),
        bar([(round(lag.p95 * 1000), style)], limit, width),
        row("frames/s", f"{rate(now.frames_per_s)} · {seconds(now.frame_s)} each", width),
        row("updates/s", rate(now.updates_per_s), width),
        row("cpu", percent(now.cpu), width),
        row("load per core", f"{now.load_per_core:.1f}", width),
    ]


def _tab(vitals: Vitals, width: int) -> Sequence[Content]:
    metrics = vitals.metrics or Metrics()
    cached = f"{count(metrics.cached_tokens)} of {count(metrics.prompt_tokens)}" if metrics.prompt_tokens else NOTHING
    limit = vitals.model.context_length if vitals.model else 0
    style = "$warning" if vitals.context_tokens > 0.9 * limit else OWN.variable
    return [
        row("persona", shorten(printable(vitals.persona), width - 10), width),
        charted("ttft", vitals.ttfts, seconds(metrics.ttft_s), width),
        charted("tpot", vitals.tpots, seconds(metrics.tpot_s), width),
        row("cached", cached, width),
        row("context", f"{count(vitals.context_tokens)} / {count(limit)}" if limit else NOTHING, width),
        bar([(vitals.context_tokens, style)], limit, width),
        *([row("queued", seconds(metrics.queue_s), width)] if vitals.responsiveness else ()),
    ]


def _engine(vitals: Vitals, width: int) -> Sequence[Content]:
    stats = vitals.stats
    waiting = f" · {count(stats.waiting)} waiting" if stats.waiting else ""
    return [
        row(f"tokens/s, 0–{scale(vitals.speeds):g}" if vitals.speeds else "tokens/s", rate(vitals.speed), width),
        Content.styled(sparkline(vitals.speeds, width), "$primary" if vitals.speed else "$kv-cached"),
        row("running", f"{count(stats.running)}{waiting}", width),
        row("hit rate", percent(stats.hit_rate), width),
        _hint(vitals, width),
        *(_pressure(stats, width) if vitals.responsiveness else ()),
    ]


def _pressure(stats: EngineStats, width: int) -> Sequence[Content]:
    return [
        row("prefill tokens/s", rate(stats.prefill_tokens_per_s), width),
        row("preemptions", count(stats.preemptions), width),
    ]


def _hint(vitals: Vitals, width: int) -> Content:
    """What to look at first; without a model there is nothing to see yet."""
    if vitals.model is None:
        return quiet("the engine is not ready")
    found = diagnose(Reading.now(vitals.stats, vitals.metrics, vitals.model))
    if found.bottleneck == "none":
        return quiet("replies wait, see the queue" if vitals.waiting else found.hint)
    return Content.styled(found.hint, "$warning")


def _waiting(vitals: Vitals, width: int) -> Sequence[Content]:
    lines = []
    for title, reason in vitals.waiting:
        lines.append(Content.assemble(BADGES["queued"], " ", title))
        if reason:
            lines.append(quiet(f"  for {printable(reason)}"))
    return lines


def _model(vitals: Vitals, width: int) -> Sequence[Content]:
    model = vitals.model
    if model is None:
        return [quiet("none yet"), Content(""), Content("")]
    warning = [Content.styled(model.kv_warning, "$warning")] if model.kv_warning else []
    return [
        Content(printable(model.name)),
        quiet(f"{model.weights} · kv {model.kv_dtype} · {model.device}"),
        row("memory of the engine", size(vitals.stats.rss_bytes) if vitals.stats.rss_bytes else NOTHING, width),
        *warning,
    ]


def _pool(vitals: Vitals, width: int) -> Sequence[Content]:
    pool, owners = vitals.stats.pool, vitals.owners()
    right = (width - 2) // 2

    def legend(owner: Owner, width: int) -> Content:
        label = row(owner.name, str(owners[owner]), width - 2)
        return Content.assemble((f"{owner.glyph} ", owner.variable), label)

    memory = Content.assemble("  ", row("pool", size(pool.total * pool.block_bytes), right - 2))
    columns = (OWN, legend(SHARED, right)), (OTHER, legend(CACHED, right)), (FREE, memory)
    return [
        row("in use", f"{count(pool.used)} / {count(pool.total)}", width),
        _pool_bar(vitals, width),
        *(Content("  ").join([legend(owner, width - right - 2), beside]) for owner, beside in columns),
    ]


def _pool_bar(vitals: Vitals, width: int) -> Content:
    owners = vitals.owners()
    parts = [(owners[owner], owner.variable) for owner in OWNERS if owner is not FREE]
    return bar(parts, len(vitals.stats.block_map), width)


def _strip(vitals: Vitals, width: int) -> Sequence[Content]:
    stats = vitals.stats
    numbers = Content("   ").join(
        Content.assemble(quiet(f"{label} "), value) for label, value in _strip_numbers(vitals)
    )
    pool = quiet(f"  {count(stats.pool.used)} / {count(stats.pool.total)} blocks")
    return [numbers, Content.assemble(_pool_bar(vitals, max(8, width - pool.cell_length)), pool)]


def _strip_numbers(vitals: Vitals) -> Sequence[tuple[str, str]]:
    stats, metrics, now = vitals.stats, vitals.metrics or Metrics(), vitals.responsiveness
    if now:
        return (
            ("lag p95", seconds(now.lag.p95)),
            ("max", seconds(now.lag.max)),
            ("frames/s", rate(now.frames_per_s)),
            ("cpu", percent(now.cpu)),
            ("load/core", f"{now.load_per_core:.1f}"),
        )
    return (
        ("ttft", seconds(metrics.ttft_s)),
        ("tpot", seconds(metrics.tpot_s)),
        ("tok/s", rate(vitals.speed)),
        ("hit", percent(stats.hit_rate)),
        ("running", count(stats.running)),
        ("waiting", count(stats.waiting)),
    )
