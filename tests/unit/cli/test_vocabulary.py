"""One word means one thing on every command."""

import re
from pathlib import Path

import pytest

from commands import invoke
from panther.cli import build_app
from panther.verbs import VERBS

APP = build_app()
CHOICE = re.compile(r"'(.*?)'")
ROOT = Path(__file__).resolve().parents[3]


def options(command):
    """Names of a command's options -> argument."""
    app = APP
    for word in command.split():
        app = app[word]
    arguments = app.assemble_argument_collection()
    return {name: argument for argument in arguments if not argument.is_positional_only() for name in argument.names}


OPTIONS = {command: options(command) for command in VERBS}


def test_the_help_has_its_panels_in_the_order_of_the_work():
    panels = ["Start", "Slides", "Prototypes and embeddings", "Look", "Predict and compare", "Data"]
    shown = invoke("--help").stdout
    places = [shown.index(f" {panel} ─") for panel in panels]
    assert places == sorted(places)
    assert {verb.panel for verb in VERBS.values()} == set(panels)


# Options that take different things, and why that is one meaning.
SAME_MEANING = {
    "--on": "retrieval judges several ways beside each other",
    "--dtype": "convert may keep the type, and knows float64; slides writes two types",
    "--n-prototypes": "train takes a number, prototypes also auto",
    "--prototypes": "view takes several, to compare them",
    "--model": "view takes several, to compare them",
    "--embeddings": "predict takes several, each with the name that the model has for it",
    "--set": "slides takes settings of --tissue, in Python a dictionary",
    "--workers": "view runs on this machine",
    "--maps": "report takes the folder that the others write, or with --no-maps do not",
}


def kind(argument):
    """Type of an option's value; whether it may be left out and the order of choices, which `typing` caches, do not matter."""
    name = re.sub(r"^typing\.Optional\[(.*)\]$|^(.*) \| None$|^<class '(.*)'>$", r"\1\2\3", str(argument.hint))
    return f"one of {sorted(CHOICE.findall(name))}" if name.startswith("typing.Literal") else name


def test_an_option_takes_the_same_kind_of_value_everywhere():
    kinds = {}
    for command, known in OPTIONS.items():
        for name, argument in known.items():
            if name.startswith("--") and not name.startswith("--empty-"):
                kinds.setdefault(name, {}).setdefault(kind(argument), []).append(command)
    different = {name: found for name, found in kinds.items() if len(found) > 1 and name not in SAME_MEANING}
    assert different == {}


def test_an_available_gpu_is_used_by_default():
    defaults = {c: known["--device"].field_info.default for c, known in OPTIONS.items() if "--device" in known}
    assert {"embed", "prototypes", "train", "slides"} <= set(defaults)
    assert set(defaults.values()) == {"auto"}


@pytest.mark.parametrize("command", [command for command, known in OPTIONS.items() if "--table" in known])
def test_every_command_with_a_clinical_table_takes_its_columns_by_name(command):
    assert {"--slide-column", "--patient-column", "--site-column"} <= set(OPTIONS[command])


@pytest.mark.parametrize("command", VERBS)
def test_every_option_has_help(command):
    shown = invoke(*command.split(), "--help")
    assert shown.exit_code == 0
    rows = re.findall(r"^│ [ *]*(-[\w-]+(?: -\w)?(?: [A-Z0-9|,:=.]+)*) *(.*?) *│$", shown.stdout, re.MULTILINE)
    assert rows
    assert [row for row, text in rows if not text] == []


TYPED = re.compile(r"panther ([a-z][a-z-]+)([^`#|\n]*)")


def test_commands_that_a_reader_may_type_have_these_options():
    """In the README, the documentation, and what the package prints (hints of the report, the demo)."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    checked, wrong = 0, []
    for page in pages:
        for found in TYPED.finditer(re.sub(r"\\\n\s*", " ", page.read_text())):
            for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", found[2].partition(", then")[0]):
                checked += found[1] in OPTIONS
                if word not in OPTIONS.get(found[1], {word: None}):
                    wrong.append(f"{page.relative_to(ROOT)}: {found[0]}")
    assert wrong == []
    assert checked > 100
