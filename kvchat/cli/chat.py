"""`kvchat`: the chat itself, with the engine in a process of its own. Nothing here imports torch."""

from __future__ import annotations

import gc
import os

import click

from kvchat.cli.options import Options


def chat(options: Options, continue_last: bool) -> None:
    """Open the chat until the user leaves it, with the last conversation in front if asked. Raises click.UsageError
    when this is no terminal for it."""
    if not (os.isatty(0) and os.isatty(1)) or os.environ.get("TERM", "dumb") == "dumb":
        raise click.UsageError("the chat needs a full terminal; ask a single question with: kvchat -p TEXT")
    gc.disable()  # KvChatApp enables it: nothing of a start is garbage, and looking for it takes a tenth of the time

    from engine.process import ProcessClient
    from kvchat import paths
    from kvchat.cli.logfile import log_to_file
    from kvchat.cli.settings import resolve
    from kvchat.store import Store
    from kvchat.tui.app import KvChatApp

    settings = resolve(options)
    log_to_file()
    with Store.open() as store:
        last = store.last_conversation() if continue_last else None
        client = ProcessClient(settings.config.engine, paths.log_dir() / "engine.log")
        app = KvChatApp(settings.config, store, client, settings.personas, options.config)
        if last:
            app.workspace.continue_with(last.id)
        try:
            app.run()
        finally:
            client.close()
    if app.crash:
        raise app.crash
    if app.return_code:
        raise click.exceptions.Exit(app.return_code)
