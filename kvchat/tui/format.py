"""Numbers and foreign text, made fit to show."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from engine.api import Metrics

_CONTROLS: dict[int, int | None] = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_CONTROLS[ord("\r")] = None
# What reorders the line it stands in, and with it what others wrote there. Right-to-left text does without.
_CONTROLS |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
# Bytes of a file's name that are not UTF-8; nothing can encode them.
_CONTROLS |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
_REMOVED = dict.fromkeys(_CONTROLS)

NOTHING = "–"
"""Where a number will stand."""


def printable(text: str) -> str:
    """Text of a model or a user with its control characters made visible (ESC becomes U+241B), so that no terminal
    obeys them. Newlines and tabs stay."""
    return text.translate(_CONTROLS)


def typed(text: str) -> str:
    """Pasted text as if it had been typed: lines end in newlines, and tabs are the only other control characters."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_REMOVED)


def count(number: int) -> str:
    """12345 -> "12,345"."""
    return f"{number:,}"


def hashtags(tags: Sequence[str]) -> str:
    """("work", "draft") -> "#work #draft"."""
    return " ".join(f"#{printable(tag)}" for tag in tags)


def tokens(number: int) -> str:
    """1 -> "1 token", 1204 -> "1,204 tokens"."""
    return f"{count(number)} token" + "s" * (number != 1)


def seconds(value: float | None) -> str:
    """0.0241 -> "24.1 ms", 0.182 -> "182 ms", 1.5 -> "1.50 s", None -> NOTHING."""
    if value is None:
        return NOTHING
    if value < 0.0995:
        return f"{value * 1000:.1f} ms"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60)} s"


def rate(value: float | None) -> str:
    """Tokens per second: 41.5 -> "41.5", 306.2 -> "306", None -> NOTHING."""
    if value is None:
        return NOTHING
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def percent(value: float) -> str:
    """0.87 -> "87 %"."""
    return f"{value * 100:.0f} %"


def size(number: int) -> str:
    """Bytes: 268435456 -> "256 MiB"."""
    value = float(number)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def shorten(text: str, limit: int) -> str:
    """At most `limit` cells, with an ellipsis where something was cut."""
    return text if cell_len(text) <= limit else set_cell_size(text, limit - 1).rstrip() + "…"


def statistics(metrics: Metrics) -> str:
    """What a reply cost, on one line; parts that say nothing are left out."""
    parts = []
    if metrics.ttft_s is not None:
        parts.append(f"ttft {seconds(metrics.ttft_s)}")
    if metrics.tpot_s is not None:
        parts.append(f"tpot {seconds(metrics.tpot_s)}")
        parts.append(f"{rate(metrics.tokens_per_s)} tok/s")
    parts.append(tokens(metrics.completion_tokens))
    if metrics.prompt_tokens:
        parts.append(f"{percent(metrics.cached_tokens / metrics.prompt_tokens)} cached")
    if metrics.queue_s >= 0.05:
        parts.append(f"queued {seconds(metrics.queue_s)}")
    if metrics.preemptions:
        parts.append(f"preempted {metrics.preemptions}×")
    return " · ".join(parts)
