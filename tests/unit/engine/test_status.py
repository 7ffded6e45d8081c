"""Counts of what is done, failed and left, from the files of a job or study."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.running import Runner, strict_json
from panther.engine import part_of
from panther.errors import InputError, LeftOutWarning
from panther.verbs.data import status
from slides.phantoms import tissue_slide, write_pyramid

SLIDES = ("--mpp", "1", "--patch-size", "64", "-j", "1")


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    image, _ = tissue_slide()
    for number in range(5):
        write_pyramid(tmp_path / "images" / f"T{number}.tif", np.roll(image, 40 * number, 0), 0.5, levels=1)
    return tmp_path


def test_parts_of_a_job_array_give_the_files_and_rows_of_one_run(images, monkeypatch, capsys):
    panther = Runner(monkeypatch, capsys)
    (images / "images" / "bad.svs").write_bytes(b"no slide")
    panther("slides", "images", "-o", "whole", *SLIDES, code=1)
    panther("slides", "images", "-o", "job", *SLIDES, "--part", "3/3", code=1)
    panther("slides", "images", "-o", "job", *SLIDES, "--part", "1/3")
    with pytest.warns(LeftOutWarning):
        steps = status(images / "job").values["steps"]
    assert [(one["total"], one["done"], len(one["failed"]), one["left"]) for one in steps] == [(4, 3, 1, 0)] * 2
    panther("slides", "images", "-o", "job", *SLIDES, "--part", "2/3")
    files = [
        {
            str(path.relative_to(place)): path.read_bytes()
            for path in place.rglob("*")
            if path.suffix in (".h5", ".png", ".geojson")
        }
        for place in (images / "whole", images / "job")
    ]
    assert files[0]
    assert files[0] == files[1]
    shown = strict_json(panther("status", "job", "--json", code=1)[0])
    assert [(one["total"], one["done"], one["left"]) for one in shown["steps"]] == [(6, 5, 0)] * 2
    assert list(shown["failures"]) == ["bad"]
    panther("slides", "images", "-o", "job", *SLIDES, code=1)  # one run over all writes one table of all
    one, whole = (pd.read_csv(images / name / "summary.csv") for name in ("job", "whole"))
    pd.testing.assert_frame_equal(one, whole)


def test_a_study_counts_its_jobs(tmp_path, monkeypatch, capsys):
    import panther

    rng = np.random.default_rng(0)
    bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(12)}
    table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    study = {"name": "s", "table": table, "features": bags, "task": {"label": "subtype"}, "heads": ["probe"]}
    panther.run_study({**study, "n_prototypes": [2], "splits": {"k": 2}, "bootstrap": 10}, tmp_path / "study")
    steps = {one["step"]: (one["total"], one["done"]) for one in status(tmp_path / "study").values["steps"]}
    assert steps == {"prototypes": (2, 2), "embeddings": (2, 2), "models": (2, 2)}
    next((tmp_path / "study").rglob("*.safetensors")).unlink()
    assert sum(one["left"] for one in status(tmp_path / "study").values["steps"]) <= 1


def test_parts_cover_all_items_once():
    items = tuple(range(11))
    assert sorted(item for k in range(1, 5) for item in part_of(items, f"{k}/4")) == list(items)
    assert part_of(items, "") == items
    for wrong in ("0/3", "4/3", "x", "1", "-1/3"):
        with pytest.raises(InputError, match="part"):
            part_of(items, wrong)


def test_other_folders_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError):
            status(folder)
