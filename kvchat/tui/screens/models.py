"""Chooses the model, and installs models."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from engine.errors import ModelError
from engine.locate import models_dir
from kvchat.catalogue.background import BackgroundPull
from kvchat.catalogue.folder import InstalledModel, survey
from kvchat.catalogue.names import KNOWN_MODELS, KnownModel
from kvchat.catalogue.progress import Progress
from kvchat.tui.format import count, printable, size


@dataclass(frozen=True, slots=True)
class Survey:
    """The models there are, and what is left of the disk."""

    installed: list[InstalledModel]
    damaged: list[str]
    known: list[KnownModel]
    """Not installed."""
    free_bytes: int


class ModelScreen(ModalScreen[str | None]):
    """Lists the installed models and those that can be had, and installs one of these. Dismissed with the name of an
    installed one, or None."""

    BINDINGS = [Binding("escape", "cancel", "Cancel", show=False)]

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current
        self._pull: BackgroundPull | None = None
        self._list = OptionList(compact=True)
        self._other = Input(
            compact=True, placeholder="Another one: OWNER/REPO of the Hugging Face Hub, a folder, a GGUF"
        )
        self._bar = ProgressBar(show_eta=False)
        self._line = Static(classes="hint", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="models"):
            yield Static("Model", classes="heading", markup=False)
            yield self._list
            yield self._other
            yield self._bar
            yield self._line

    def on_mount(self) -> None:
        self._bar.display = False
        self._line.update("looking at the models")
        self._look()

    @work(thread=True)
    def _look(self) -> None:
        """Reading the models' files takes a moment."""
        found = survey()
        installed = [model for model in found if isinstance(model, InstalledModel)]
        names = {model.name for model in installed}
        folder = next(parent for parent in (models_dir(), *models_dir().parents) if parent.is_dir())
        self.app.call_from_thread(
            self._show,
            Survey(
                installed,
                [str(problem) for problem in found if not isinstance(problem, InstalledModel)],
                [model for model in KNOWN_MODELS if model.name not in names],
                shutil.disk_usage(folder).free,
            ),
        )

    def _show(self, survey: Survey) -> None:
        options: list[Option | None] = [self._installed(model) for model in survey.installed]
        options += [
            Option(Content.styled(f"damaged: {printable(problem)}", "$text-error"), disabled=True)
            for problem in survey.damaged
        ]
        if options and survey.known:
            options.append(None)
        options += [_known(model, survey.free_bytes) for model in survey.known]
        self._list.set_options(options)
        names = [model.name for model in survey.installed]
        self._list.highlighted = names.index(self._current) if self._current in names else 0
        self._list.focus()
        self._say(f"{size(survey.free_bytes)} free · Enter uses or installs it · Tab for another one · Esc cancels")

    def _installed(self, model: InstalledModel) -> Option:
        mark = "● " if model.name == self._current else "  "
        about = (
            f"{model.parameters / 1e6:,.0f}M parameters · {size(model.disk_bytes)} · "
            f"{count(model.context_length)} tokens of context · KV {size(model.kv_token_bytes)} a token"
        )
        return _option((mark, "$success"), model.name, about, f"installed:{model.name}")

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        kind, _, name = (event.option_id or "").partition(":")
        if self._pull:
            self._say("one model at a time: wait, or stop the download with Esc")
        elif kind == "installed":
            self.dismiss(name)
        else:
            self._install(name)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        if event.value.strip() and not self._pull:
            self._install(event.value.strip())

    @work(thread=True)
    def _install(self, name: str) -> None:
        """Pull a model and say how it goes."""
        tell = self.app.call_from_thread
        self._pull = BackgroundPull(name)
        try:
            for progress in self._pull.reports():
                tell(self._progress, name, progress)
        except ModelError as error:
            self._pull = None
            tell(self._ended, str(error))
        else:
            self._pull = None
            tell(self._ended, "")

    def _progress(self, name: str, progress: Progress) -> None:
        done, total = progress.done_bytes, progress.total_bytes
        self._bar.display = total is not None
        self._bar.update(total=total, progress=done or 0)
        amount = f" {size(done or 0)} of {size(total)}" if total else ""
        self._say(f"{name}: {progress.stage}{amount} · Esc stops it")

    def _ended(self, problem: str) -> None:
        self._bar.display = False
        if problem:
            self._say(problem)
        else:
            self._other.clear()
            self._look()

    def _say(self, text: str) -> None:
        self._line.update(printable(text))

    def action_cancel(self) -> None:
        """Stop the download, or leave."""
        if self._pull:
            self._pull.cancel()
        else:
            self.dismiss(None)

    def on_unmount(self) -> None:
        if self._pull:
            self._pull.cancel()


def _known(model: KnownModel, free_bytes: int) -> Option:
    fits = "" if model.installed_bytes < free_bytes else "  does not fit on the disk: "
    about = f"{fits}{model.description} · {size(model.installed_bytes)} to install · {model.licence}"
    return _option(("↓ ", "$accent"), model.name, about, f"known:{model.name}")


def _option(mark: tuple[str, str], name: str, about: str, option_id: str) -> Option:
    lines = Content.assemble(mark, (printable(name), "bold"), "\n  ", (printable(about), "$foreground-muted"))
    return Option(lines, id=option_id)
