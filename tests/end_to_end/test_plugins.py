"""Python files of users that register methods: `--plugins FILE` on every command, `plugins:` in a study."""

import re
from pathlib import Path

import anndata
import numpy as np
import pytest
import yaml

from cli.running import make_cohort
from commands import invoke, run
from panther import registry
from panther.aggregators import aggregators
from panther.models.heads import heads

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "extend.md"
METHOD, HEAD = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]


@pytest.fixture
def cohort(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_cohort(tmp_path)
    (tmp_path / "median.py").write_text(METHOD)
    (tmp_path / "head.py").write_text(HEAD)
    yield tmp_path
    aggregators._entries.pop("median", None)
    heads._entries.pop("two-layers", None)
    registry.PLUGINS.clear()


def test_the_method_of_the_page_is_known_to_a_command_and_its_workers(cohort):
    run("embed", "feats", "-o", "m.h5ad", "--method", "median", "--plugins", "median.py", "-j", 2)
    medians = anndata.read_h5ad("m.h5ad")
    for name, row in zip(medians.obs_names, medians.X, strict=True):
        expected = np.sort(np.load(f"feats/{name}.npy"), 0)
        np.testing.assert_array_equal(row, expected[(len(expected) - 1) // 2])  # torch takes the lower one


def test_a_study_names_its_plugins(cohort):
    (cohort / "t.csv").write_text("case_id,slide_id,label\n" + "".join(f"p{i},00{i},{'ab'[i % 2]}\n" for i in range(6)))
    study = {"name": "s", "table": "t.csv", "features": {"f": "feats"}, "task": {"label": "label"}, "splits": {"k": 2}}
    study |= {"plugins": ["median.py", "head.py"], "methods": ["median"], "heads": ["two-layers"], "bootstrap": 10}
    study |= {"training": {"epochs": 2, "min_steps": 0}}
    (cohort / "study.yaml").write_text(yaml.safe_dump(study))
    ended = run("run", "study.yaml", "-o", "out", "-j", 2)
    assert "median" in ended.stdout
    before = set((cohort / "out" / "cache").iterdir())
    registry.PLUGINS.clear()
    aggregators._entries.pop("median")
    heads._entries.pop("two-layers")
    (cohort / "median.py").write_text(METHOD + "\n# changed\n")
    run("run", "study.yaml", "-o", "out", "-j", 2)
    assert set((cohort / "out" / "cache").iterdir()) > before


@pytest.mark.parametrize("content", [None, "import nothing_of_this_name", "1 +"])
def test_an_invalid_plugin_file_is_refused_by_its_name(cohort, content):
    if content is not None:
        (cohort / "bad.py").write_text(content)
    ended = invoke("embed", "feats", "-o", "m.h5ad", "--method", "median", "--plugins", "bad.py")
    assert ended.exit_code == 2
    assert re.match(r"panther: \S*bad\.py: .+\n$", ended.stderr)
