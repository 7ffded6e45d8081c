"""Tab after an option offers its values: asked for as a shell does, without loading anything heavy, and true to what the package knows."""

import os
import subprocess
import sys

import pytest

from panther.cli import completion


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
        (("embed", "feats", "--method", ""), completion.EMBEDDINGS),
        (("embed", "feats", "--preset", ""), completion.PRESETS),
        (("embed", "feats", "--readout", "b"), ("bottom",)),
        (("embed", "feats", "--level", ""), ("slide", "patient")),
        (("train", "feats", "--method", ""), (*completion.EMBEDDINGS, *completion.NETWORKS)),
        (("train", "feats", "--head", "paper-"), ("paper-classification", "paper-survival")),
        (("train", "feats", "--loss", ""), completion.LOSSES),
        (("slides", "s", "--encoder", "uni"), ("uni", "uni2")),
        (("slides", "t", "--encoder", ""), completion.ENCODERS),
        (("splits", "t.csv", "--scheme", ""), completion.SCHEMES),
        (("kaplan-meier", "s.h5ad", "--survival", ""), completion.ENDPOINTS),
        (("study", "new", "k"), ("kirc",)),
        (("convert", "a", "-o", "b", "--to", ""), ("trident", "npy", "safetensors")),
    ],
)
def test_a_shell_is_offered_the_values_of_an_option(words, values):
    assert offered(*words).split() == list(values)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell):
    text = offered("embed", "feats", "--preset", "''" if shell == "zsh" else "", shell=shell)
    assert all(name in text for name in completion.PRESETS)


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


def test_the_lists_are_what_the_package_knows():
    from panther.aggregators import aggregators
    from panther.aggregators.panther import READOUT
    from panther.cohort.endpoints import ENDPOINTS
    from panther.cohort.splits import SCHEMES
    from panther.encoders import encoders
    from panther.mil import networks
    from panther.mixture import PRESETS
    from panther.models.checks import head_names, loss_names
    from panther.models.scaling import scalers
    from panther.study.templates import TEMPLATES

    for listed, known in (
        (completion.EMBEDDINGS, aggregators.names()),
        (completion.NETWORKS, networks.names()),
        (completion.HEADS, head_names()),
        (completion.LOSSES, loss_names()),
        (completion.PRESETS, PRESETS),
        (completion.READOUTS, READOUT),
        (completion.SCALINGS, scalers.names()),
        (completion.SCHEMES, SCHEMES),
        (completion.ENDPOINTS, ENDPOINTS),
        (completion.ENCODERS, encoders.names()),
        (completion.templates(), TEMPLATES),
    ):
        assert sorted(listed) == sorted(known)
