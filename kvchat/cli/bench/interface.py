"""`kvchat bench interface`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from kvchat.cli.options import Options, pass_options
from kvchat.cli.progress import ProgressLine


@click.command("interface")
@click.option("--seconds", metavar="N", type=click.IntRange(min=1), default=30, help="How long: 30.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pass_options
def command(options: Options, seconds: int, as_json: bool) -> None:
    """How late the chat reacts while two tabs stream and every core is busy.

    The lag is what a key waits for before the application sees it. Its 95th percentile should stay below 33 ms. The
    panel of the chat shows the same figure while you work: F3, up to its last form.
    """
    from kvchat.bench.interface import measure
    from kvchat.cli.settings import resolve
    from kvchat.tui.format import count
    from kvchat.tui.format import seconds as spelled
    from kvchat.tui.responsiveness import LAG_LIMIT_S

    progress = ProgressLine()
    try:
        report = measure(resolve(options).config, seconds, progress.show)
    finally:
        progress.end()
    if as_json:
        print(json.dumps(asdict(report) | {"seconds": seconds, "limit_s": LAG_LIMIT_S}))
        return
    lag = report.lag
    verdict = "below" if lag.p95 < LAG_LIMIT_S else "above"
    print(f"lag p50 {spelled(lag.p50)}, p95 {spelled(lag.p95)}, max {spelled(lag.max)}")
    print(f"p95 is {verdict} the limit of {spelled(LAG_LIMIT_S)}")
    print(f"{count(report.tokens)} tokens in two tabs in {seconds} s, load per core {report.load_per_core:.1f}")
