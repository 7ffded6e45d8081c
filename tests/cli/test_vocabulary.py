"""One word means one thing on every command."""

import ast
import re
from enum import StrEnum
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from running import Runner, make_cohort
from typer.main import get_command

import panther as package
from panther.cli import PANELS, app

TOP = get_command(app)


@pytest.fixture
def panther(monkeypatch, capsys):
    return Runner(monkeypatch, capsys)


@pytest.fixture
def cohort(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_cohort(tmp_path)


def leaves(group=TOP, name=""):
    """Every command that does something, by what is typed."""
    for inner, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{inner} ")
        else:
            yield f"{name}{inner}", command


def options(command):
    return [one for one in command.params if one.param_type_name == "option"]


def test_every_command_stands_in_a_panel_of_what_one_wants_to_do(panther):
    assert list(PANELS) == ["Start", "Slides", "Prototypes and embeddings", "Look", "Predict and compare", "Data"]
    assert all(command.rich_help_panel in PANELS for command in TOP.commands.values())
    shown, _ = panther("--help")
    places = [shown.index(f" {panel} ─") for panel in PANELS]
    assert places == sorted(places)


def kind(one, command):
    """What an option takes: a bool, an int, a Path, text ...; whether it may be left out is no matter."""
    hint = get_type_hints(command.callback)[one.name]
    taken = next((part for part in get_args(hint) if part is not type(None)), hint)
    return str if isinstance(taken, type) and issubclass(taken, StrEnum) else taken


# Words that take different things, and why that is one meaning.
SAME_MEANING = {
    "-j": "view, train and tissue-classifier take no cluster",
    "--workers": "view, train and tissue-classifier take no cluster",
    "-C": "train takes a number, prototypes also auto",
    "--n-prototypes": "train takes a number, prototypes also auto",
    "-p": "view takes several, to compare them",
    "--prototypes": "view takes several, to compare them",
    "--model": "view takes several, to compare them",
    "--embeddings": "predict takes several, each with the name that the model has for it",
    "--maps": "report takes the folder that the others write, or with --no-maps do not",
}


def test_a_word_takes_the_same_thing_everywhere():
    takes = {}
    for name, command in leaves():
        for one in options(command):
            if one.name == "help":
                continue
            for spelling in one.opts:
                takes.setdefault(spelling, {}).setdefault(kind(one, command), []).append(name)
    different = {word: kinds for word, kinds in takes.items() if len(kinds) > 1 and word not in SAME_MEANING}
    assert different == {}


@pytest.mark.parametrize("word", ["--by", "--slide", "--site", "--patient", "--probe", "--mpp-table"])
def test_words_with_two_meanings_are_gone(word):
    assert [name for name, command in leaves() if any(word in one.opts for one in options(command))] == []


def test_mpp_is_the_resolution_of_patches_and_only_slides_lays_patches():
    assert [name for name, command in leaves() if any("--mpp" in one.opts for one in options(command))] == ["slides"]


def test_what_is_written_is_an_option_everywhere():
    for name, command in leaves():
        for one in command.params:
            assert one.param_type_name == "option" or one.name not in ("output", "out"), name
            if "-o" in one.opts:
                assert "--output" in one.opts, name


def test_a_gpu_that_is_there_is_used_by_default():
    defaults = {name: one.default for name, command in leaves() for one in options(command) if "--device" in one.opts}
    assert {"embed", "prototypes", "train", "slides", "tissue-classifier"} <= set(defaults)
    assert set(defaults.values()) == {"auto"}


# Parameters of the package that are no options: settings of a method, which -s takes, and what only Python can give.
NO_OPTIONS = {"columns", "relative", "variance", "n_splits", "smallest", "largest", "s_0", "s_1", "s_2"}


def test_every_parameter_that_the_package_speaks_of_is_an_option_of_a_command():
    known = {spelling for _, command in leaves() for one in options(command) for spelling in one.opts}
    spoken = {}
    for path in Path(package.__file__).parent.rglob("*.py"):
        if "cli" in path.parts or "viewer" in path.parts:  # the viewer's parameters are those of its page's addresses
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else node.value
                for name in re.findall(r"`([a-z][a-z0-9_]*)=[^`]*`", text) if isinstance(text, str) else ():
                    spoken.setdefault(name, path.name)
    typed = {name: f"{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}" for name in spoken.keys() - NO_OPTIONS}
    missing = {name: (option, spoken[name]) for name, option in typed.items() if option not in known}
    assert missing == {}


@pytest.mark.parametrize(
    "name", [name for name, command in leaves() if any(one.name == "table" for one in command.params)]
)
def test_every_command_with_a_clinical_table_takes_its_columns_by_name(name):
    options = {spelling for one in dict(leaves())[name].params for spelling in one.opts}
    assert {"--slide-column", "--patient-column", "--site-column"} <= options


ROOT = Path(__file__).resolve().parents[2]
TYPED = re.compile(r"panther ([a-z][a-z-]+)([^`#|\n]*)")


def test_commands_that_a_reader_may_type_have_the_options_they_are_given():
    """In the README, the documentation, and what the package prints (hints of the report, the demo)."""
    known = {
        name: {spelling for one in options(command) for spelling in (*one.opts, *one.secondary_opts)}
        for name, command in leaves()
    }
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    checked, wrong = 0, []
    for page in pages:
        for found in TYPED.finditer(re.sub(r"\\\n\s*", " ", page.read_text())):
            for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", found[2].partition(", then")[0]):
                checked += found[1] in known
                if word not in known.get(found[1], {word}):
                    wrong.append(f"{page.relative_to(ROOT)}: {found[0]}")
    assert wrong == []
    assert checked > 100
