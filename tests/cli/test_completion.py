"""Tab after an option offers its values: asked for as a shell does, without loading anything heavy, and true to what the package knows."""

import os
import subprocess
import sys

import pytest

from panther.cli import completion
from panther.mil import networks
from panther.mixture import PRESETS


def offered(*words, shell="bash"):
    """What the shell is given for the last of the words, which may be its beginning."""
    line = " ".join(("panther", *words))
    variables = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words))},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, "_PANTHER_COMPLETE": f"complete_{shell}", **variables}
    done = subprocess.run(
        [sys.executable, "-m", "panther"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("embed", "feats", "--readout", "b"), ("bottom",)),
        (("embed", "feats", "--level", ""), ("slide", "patient")),
        (("train", "feats", "--method", "a"), networks.names()[:2]),
        (("train", "feats", "--head", "paper-"), ("paper-classification", "paper-survival")),
        (("slides", "s", "--encoder", "uni"), ("uni", "uni2")),
        (("study", "new", "k"), ("kirc",)),
        (("convert", "a", "-o", "b", "--to", ""), ("trident", "npy", "safetensors")),
    ],
)
def test_a_shell_is_offered_the_values_of_an_option(words, values):
    assert offered(*words).split() == list(values)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell):
    text = offered("embed", "feats", "--preset", "''" if shell == "zsh" else "", shell=shell)
    assert all(name in text for name in PRESETS)


def test_completion_loads_nothing_heavy():
    code = (
        "import os, sys\n"
        "os.environ.update(_PANTHER_COMPLETE='complete_bash', COMP_WORDS='panther study new ', COMP_CWORD='3')\n"
        "from panther.cli import main\n"
        "sys.argv = ['panther']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'h5py'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kirc" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("source", sorted({source for sources in completion.SOURCES.values() for source in sources}))
def test_every_source_of_values_holds_names(source):
    assert all(isinstance(name, str) for name in completion.values(source))
    assert completion.values(source)
