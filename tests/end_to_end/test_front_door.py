"""The public names of `import panther`: documented, with examples that run, imported when used."""

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import panther

NAMES = [name for name in panther.__all__ if name != "__version__"]
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(panther, name))]


def test_the_lists_of_names_and_the_docstring_agree():
    assert sorted(NAMES) == sorted(panther._HOMES)
    assert dir(panther) == sorted(panther.__all__)
    listed = set(re.findall(r"`(\w+)`", panther.__doc__))
    assert listed == set(NAMES)
    with pytest.raises(AttributeError, match="no attribute 'embd'"):
        panther.embd  # noqa: B018


def test_the_reference_lists_every_name():
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md").read_text()
    assert set(re.findall(r"^::: panther\.(\w+)$", page, re.MULTILINE)) - {"explain"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_documented_where_it_lives(name):
    value = getattr(panther, name)
    page = inspect.getdoc(value)
    assert page, f"{name} has no docstring"
    if name in FUNCTIONS:
        sections = re.findall(r"^(\w+)\n-+$", page, re.MULTILINE)
        wanted = {"Parameters"} if inspect.signature(value).return_annotation is None else {"Parameters", "Returns"}
        assert wanted <= set(sections), f"{name}: {sections}"
        missing = [
            p for p in inspect.signature(value).parameters if not re.search(rf"^\*{{0,2}}{p}\b", _part(page), re.M)
        ]
        assert not missing, f"{name}: {missing} is not explained"


def _part(page: str) -> str:
    """Parameters of a page, one name per line: `x, y : array` are two."""
    part = re.split(r"^Parameters\n-+\n", page, flags=re.MULTILINE)[1]
    part = re.split(r"^\w+\n-+$", part, flags=re.MULTILINE)[0]
    return "\n".join(re.sub(r", ", "\n", line.split(" :")[0]) for line in part.splitlines() if not line.startswith(" "))


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for example in doctest.DocTestFinder().find(getattr(panther, name), name, globs={}):
        runner.run(example, out=report.append)
    plt.close("all")
    assert runner.failures == 0, "".join(report)


def test_import_is_quick_and_reads_neither_torch_nor_pandas():
    code = "import sys, panther; dir(panther); print([m for m in ('torch', 'pandas', 'numpy', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
