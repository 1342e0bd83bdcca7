"""`kvchat bench NAME` and `kvchat bench all` from the command line."""

from __future__ import annotations

import json
import shlex
import sys
import xml.etree.ElementTree as xml
from importlib import import_module
from pathlib import Path

import pytest

from engine.config import EngineConfig
from kvchat import paths
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.experiments import EXPERIMENTS
from kvchat.bench.plot import Plot, Series
from kvchat.cli.bench.experiment import shown
from kvchat.cli.program import run
from kvchat.profiles import PROFILES

SETTINGS = '[engine]\ndtype = "float32"\nkv_memory = 4_000_000\n'


@pytest.fixture(autouse=True)
def settings(home: Path) -> Path:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text(SETTINGS)
    return paths.config_file()


def test_a_terminal_gets_the_answer_the_table_the_plot_and_the_record(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "prefix", "--quick", "--model", str(small_model), "--seed", "5"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("prefix: A new tab on a persona")
    for words in ("Behind a persona of 300 tokens", "TTFT with reuse, ms", "┤", "quick, seed 5"):
        assert words in printed.out
    assert "\x1b" not in printed.out, "this is no terminal"
    assert "a persona of 300 tokens" in printed.err.splitlines()


def test_json_and_the_plot_in_files(small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--png", str(tmp_path / "plot.png"), "--svg", str(tmp_path / "plot.svg")]
    assert run(["--model", str(small_model), "bench", "recompute", "--quick", "--json", *files]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["experiment"] == "recompute" and outcome["measured"]["contexts"] == [128, 512]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert xml.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "paged", "--seed", "-1"], "-1 is not in the range"),
        (["bench", "paged", "--seed", "9" * 22], "is not in the range"),
        (["bench", "paged", "--model", " "], "it must not be empty"),
        (["bench", "paged", "--png", "/nowhere/plot.png"], "there is no folder /nowhere"),
        (["bench", "all"], "--report"),
        (["bench", "papers"], "papers"),
    ],
)
def test_a_bad_value_is_one_line_and_nothing_is_measured(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_model_that_is_not_there_is_one_line_for_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    for experiment in EXPERIMENTS:
        assert run(["bench", experiment.name, "--model", "/nowhere"]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("kvchat: model /nowhere does not exist")


def test_what_cannot_be_measured_is_one_line(
    small_model: Path, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text(SETTINGS + "context_length = 48\n")
    assert run(["bench", "batching", "--model", str(small_model)]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line == "kvchat: the context of 48 tokens is shorter than 304"


def test_files_without_matplotlib_are_refused_before_anything_is_measured(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for arguments in (["prefix", "--svg", str(tmp_path / "plot.svg")], ["all", "--report", str(tmp_path)]):
        assert run(["bench", *arguments, "--model", str(small_model)]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.endswith("matplotlib, which is not installed: pip install 'kvchat[plots]'")


def test_all_writes_a_report_with_plots_and_goes_on_after_a_failure(
    small_model: Path, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text('[engine]\ndtype = "float32"\nkv_memory = 1\ncontext_length = 300\n')
    folder = tmp_path / "new" / "report"
    assert run(["bench", "all", "--quick", "--model", str(small_model), "--report", str(folder)]) == 1
    printed = capsys.readouterr()
    *answers, path = printed.out.splitlines()
    assert [answer.partition(":")[0] for answer in answers] == [experiment.name for experiment in EXPERIMENTS]
    assert path == str(folder / "report.md")
    assert printed.err.splitlines()[-1].startswith("kvchat: failed: recompute, prefix, mixed, doctor; ")
    report = (folder / "report.md").read_text()
    assert "| recompute | Failed: kv_memory of 1 bytes holds no block" in report
    assert "| peers | Left out: ConfigError: kv_memory of 1 bytes holds no block" in report
    assert "| batching | Left out: the context of 300 tokens is shorter than 304. |" in report
    for words in ("## paged\n", "](paged.svg)", " bench paged --quick --seed ", "| blocks |"):
        assert words in report
    assert json.loads((folder / "paged.json").read_text())["answer"] in report
    assert xml.parse(folder / "paged.svg")


def test_a_report_is_refused_before_anything_is_measured_where_it_would_be_lost(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.md").write_text("mine")
    (tmp_path / "file").touch()
    for folder, words in (
        (tmp_path, f"{tmp_path / 'report.md'} is there, and two runs would be mixed in it: choose an empty folder"),
        (tmp_path / "file" / "report", f"{tmp_path / 'file' / 'report'}: Not a directory"),
    ):
        assert run(["bench", "all", "--quick", "--model", str(small_model), "--report", str(folder)]) == 1
        assert capsys.readouterr().err.splitlines() == [f"kvchat: {words}"]
    assert (tmp_path / "report.md").read_text() == "mine"


def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_measured(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "recompute", "--model", str(small_model), "--svg", "/proc/plot.svg"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kvchat: /proc/plot.svg: ")


def test_all_goes_on_after_what_nobody_expected_and_what_cannot_be_saved(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(setup: Setup) -> Result:
        raise ZeroDivisionError("of a bug")

    def short(setup: Setup) -> Result:
        (tmp_path / "paged.json").mkdir()  # where its measurements belong
        return Result(
            answer="Done.", table=[["a"]], plot=Plot(x="", y="", series=[Series("", [1], [1])]), ratios={}, measured={}
        )

    def left_out(setup: Setup, *peers: object) -> Result:
        raise LeftOut("no need")

    for experiment in EXPERIMENTS:
        module = import_module(f"kvchat.bench.experiments.{experiment.name.replace('-', '_')}")
        monkeypatch.setattr(module, "run", {"recompute": broken, "paged": short}.get(experiment.name, left_out))
    assert run(["bench", "all", "--model", str(small_model), "--report", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    first, second, third, *_ = printed.out.splitlines()
    assert first.startswith("recompute: Failed: ZeroDivisionError: of a bug; this is a bug, the details are in ")
    assert (second, third) == ("paged: Done.", "batching: Left out: no need.")
    assert f"kvchat: paged cannot be saved: {tmp_path / 'paged.json'}: Is a directory" in printed.err.splitlines()
    assert printed.err.splitlines()[-1].startswith("kvchat: failed: recompute, paged; ")
    assert "| paged | Done. |" in (tmp_path / "report.md").read_text()
    assert "ZeroDivisionError: of a bug" in (paths.log_dir() / "kvchat.log").read_text()


def test_what_was_measured_can_be_measured_again(
    small_model: Path, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(small_model), "--profile", "documents"]
    given = ["bench", "mixed", "--mix", "chat", "--rate", "40.0", "--requests", "2", "--quick", "--seed", "3"]
    assert run([*flags, *given, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    again = shlex.split(outcome["command"])
    assert again[: 1 + len(flags)] == ["kvchat", *flags] and sorted(again[1 + len(flags) :]) == sorted(given)
    assert (outcome["profile"], outcome["config_file"]) == ("documents", str(settings))
    assert outcome["settings"] == PROFILES["documents"].settings | {"dtype": "float32", "kv_memory": 4_000_000}


def test_a_seed_that_was_drawn_is_in_the_command_that_does_it_again(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "prefix", "--quick", "--model", str(small_model), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["command"].endswith(f" bench prefix --quick --seed {outcome['seed']}")


def test_a_plot_is_coloured_on_a_terminal_that_wants_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result(
        answer="", table=[["a"]], plot=Plot(x="", y="", series=[Series("s", [1, 2], [1, 2])]), ratios={}, measured={}
    )
    outcome = EXPERIMENTS[0].perform(Setup(config=EngineConfig("m")), lambda setup: result)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b" in shown(outcome)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(outcome)


def test_help_names_every_experiment_with_its_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--help"]) == 0
    printed = capsys.readouterr().out
    for experiment in EXPERIMENTS:
        assert f"  {experiment.name} " in printed
        assert run(["bench", experiment.name, "--help"]) == 0
