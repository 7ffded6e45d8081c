"""Tab after an option offers its values, from the registries that hold them."""

import os
import subprocess
import sys

import pytest

from panther.encoders import encoders
from panther.mil import networks
from panther.mixture import PRESETS
from panther.study.templates import TEMPLATES


def offered(*words):
    """All candidates for the last word, as the script of a shell asks for them."""
    environment = {**os.environ, "CYCLOPTS_COMPLETION_WORDS": "".join(f"{word}\x1f" for word in words)}
    call = [sys.executable, "-m", "panther", "__complete"]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.partition("\x1fbegin\n")[2].splitlines()
    return {line.partition("\t")[0] for line in lines if not line.startswith("\x1f")}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("emb",), {"embed"}),
        (("embed", "feats", "--preset", ""), set(PRESETS)),
        (("train", "feats", "--method", "ilra"), {"ilra"} & set(networks.names())),
        (("slides", "s", "--encoder", "uni"), {name for name in encoders.names() if name.startswith("uni")}),
        (("study", "new", "k"), {name for name in TEMPLATES if name.startswith("k")}),
    ],
)
def test_a_shell_is_offered_the_values_of_an_option(words, values):
    assert values
    assert offered(*words) == values
