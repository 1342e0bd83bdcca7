"""`kvchat export`, `import` and `search`: conversations out of the history, into it, and found in it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvchat.cli.options import TEXT, Options, not_empty, pass_options

if TYPE_CHECKING:
    from kvchat.store import Conversation, Store

ID_LENGTH = 8
"""Characters of an id that are shown; any beginning that only one conversation has is understood."""
HITS = 50


@click.command("export")
@click.argument("conversation_id", metavar="[ID]", required=False, type=TEXT, callback=not_empty)
@click.option("--all", "everything", is_flag=True, help="Every conversation of the history.")
@click.option(
    "--format",
    "format",
    metavar="FORMAT",
    type=click.Choice(["markdown", "json", "text"]),
    help="markdown, json or text; else by the ending of FILE, else markdown.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE, not to stdout; .md, .json and .txt say the format.",
)
def export_command(conversation_id: str | None, everything: bool, format: str | None, output: Path | None) -> None:
    """Write a conversation as Markdown, JSON or text.

    ID is the beginning of an id, as kvchat search prints it; without one it is the last conversation. JSON holds all
    branches, token ids and measurements, and kvchat import reads it; the others hold the branch that is shown.
    """
    from kvchat.exchange import ExchangeError, format_of, render, save
    from kvchat.store import Store
    from kvchat.tui.format import printable

    if everything and conversation_id:
        raise click.UsageError("either an ID or --all")
    try:
        format = format or (format_of(output) if output else "markdown")
        with Store.open() as store:
            wanted = _all(store)[::-1] if everything else [_chosen(store, conversation_id)]
            copies = [copy for conversation in wanted if (copy := store.copy_of(conversation.id)).messages]
        if not copies:
            raise click.ClickException("there is nothing to export: no message was written yet")
        text = render(copies, format)
        if output:
            save(output, text)
        elif sys.stdout.isatty():
            print(printable(text), end="")
        else:
            sys.stdout.buffer.write(text.encode())
    except ExchangeError as error:
        raise click.ClickException(str(error)) from error


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@pass_options
def import_command(options: Options, file: Path) -> None:
    """Read conversations into the history; - is stdin.

    FILE is the JSON of kvchat export, conversations.json of ChatGPT or Claude, or messages with a role and a content: a
    list of them, {"messages": [...]}, or JSON lines of either. A conversation that was imported before stays as it is.
    """
    from kvchat.config import load_config
    from kvchat.exchange import ExchangeError, read_conversations
    from kvchat.store import Store

    sampling = load_config(options.config).sampling
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        conversations = read_conversations(raw, sampling)
    except ExchangeError as error:
        raise click.ClickException(f"{'stdin' if str(file) == '-' else file}: {error}; nothing was imported") from error
    with Store.open() as store:
        new = len(store.add_copies(conversations))
    known = len(conversations) - new
    print(f"{_count(new)} imported" + (f", {known} {'was' if known == 1 else 'were'} here already" if known else ""))


@click.command("search")
@click.argument("text", metavar="TEXT", nargs=-1, required=True, type=TEXT)
def search_command(text: tuple[str, ...]) -> None:
    """Find conversations by words of their titles and messages.

    Every word must occur, the last one may be unfinished; #NAME asks for a tag. What is found has the beginning of its
    id, for kvchat export.
    """
    from kvchat.store import Store
    from kvchat.tui.format import hashtags

    words = " ".join(text)
    if not words.strip():
        raise click.UsageError("TEXT must not be empty")
    with Store.open() as store:
        hits = store.search(words, HITS)
    for hit in hits:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(hit.conversation.updated_at))
        title = " ".join(filter(None, [_line(hit.conversation.title) or "New chat", hashtags(hit.conversation.tags)]))
        print(f"{hit.conversation.id[:ID_LENGTH]}  {when}  {title}")
        if hit.message:
            print(f"          {hit.message.role}: {_line(hit.snippet)}")
    if not hits:
        raise click.ClickException(f"nothing found with {words!r}")


def _all(store: Store) -> list[Conversation]:
    """Archived ones too, the last one first."""
    return store.conversations(include_archived=True)


def _chosen(store: Store, beginning: str | None) -> Conversation:
    if beginning is None:
        return store.last_conversation()
    found = [each for each in _all(store) if each.id.startswith(beginning.lower())]
    if not found:
        raise click.ClickException(
            f"no conversation has an id that begins with '{beginning}'; kvchat search finds them"
        )
    if len(found) > 1:
        raise click.ClickException(
            f"{len(found)} conversations have ids that begin with '{beginning}': write more of it"
        )
    return found[0]


def _line(text: str) -> str:
    """A text of the history on one line of the terminal."""
    from kvchat.tui.format import printable

    return " ".join(printable(text).split())


def _count(number: int) -> str:
    return "1 conversation" if number == 1 else f"{number:,} conversations"
