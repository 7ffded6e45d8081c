"""Messages to the browser name files, not where they lie on the server; the terminal has the whole sentence."""

import logging
import shutil
from pathlib import Path

import pytest

from panther.viewer.contents import Given, find_contents
from panther.viewer.server import Discretion, Guard, make_app
from panther.viewer.workbench import Workbench
from viewer.attacks import OWN, address, routes

PLACES = (Path("/data/my job"), Path("/data/my job/features"), Path("/data/tables/cohort.csv"), Path("/"), Path("demo"))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/data/my job/slides/S1.tif: it is damaged.", "S1.tif: it is damaged."),
        ("/data/my job/features/S 1.h5: it is damaged.", "S 1.h5: it is damaged."),
        ("/data/my job/two words/S1.tif: no.", "two words/S1.tif: no."),
        ("/data/my job: nothing (see '/data/my job').", "my job: nothing (see 'my job')."),
        ("/data/tables/cohort.csv: 3 slides.", "cohort.csv: 3 slides."),
        ("cannot identify '/home/me/S1.tif' (a).", "cannot identify '…/S1.tif' (a)."),
        ("`panther view FOLDER --allow-folder /mnt/a/b` follows.", "`panther view FOLDER --allow-folder …/b` follows."),
        ("/data/my jobs/x/y.h5", "…/my jobs/x/y.h5"),  # another folder; after a blank nobody knows where a path ends
        ("demo/slides/S1.tif: it is damaged.", "demo/slides/S1.tif: it is damaged."),
        ("3 / 4 of the slides and/or patches, 20 px/um/s", "3 / 4 of the slides and/or patches, 20 px/um/s"),
        ("There is no slide '../../x/y' here; http://127.0.0.1/a/b", "There is no slide '../../x/y' here; http://127.0.0.1/a/b"),
    ],
)  # fmt: skip
def test_folders_are_taken_out_of_sentences(said, shown):
    assert Discretion(PLACES).sentence(said) == shown


def test_the_terminal_has_the_whole_sentence_once(caplog):
    discretion = Discretion(PLACES)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            discretion.sentence("/data/my job/S1.tif: it is damaged.")
            discretion.sentence("S2.tif: it is damaged.")
    assert caplog.messages == ["/data/my job/S1.tif: it is damaged."]


def test_only_sentences_are_touched():
    text = "/data/my job/S1.tif"
    found = Discretion(PLACES).answer({"note": text, "why": text, "here": {"notes": (text,)}, "failures": {"S1": text}})
    assert found == {"note": text, "why": "S1.tif", "here": {"notes": ["S1.tif"]}, "failures": {"S1": "S1.tif"}}


def test_no_answer_says_where_damaged_files_lie(cohort_folder, outside):
    """Whatever can be asked of a folder in which everything is damaged, by a link to it, too."""
    shutil.copy(cohort_folder / "features" / "S0.h5", outside / "far.h5")
    (cohort_folder / "far.h5").symlink_to(outside / "far.h5")
    linked = cohort_folder.with_name("by a link")
    linked.symlink_to(cohort_folder)
    bench = Workbench(find_contents(linked, Given(table=linked / "cohort.csv")))
    guard = Guard()
    app = make_app(bench, guard)
    guest = app.test_client()
    guest.get(f"/?token={guard.token}")
    for name in ("slides/S0.tif", "features/S1.h5", "slides.h5ad", "names.yaml"):
        (cohort_folder / name).write_bytes(b"x")
    (cohort_folder / "slides" / "S2.tif").unlink()
    asked = [address(rule) for rule in routes(app)] + ["/api/slides/S0/patches/0/similar?where=cohort&progress=1"]
    asked += [path.replace("S0", name) for path in asked for name in ("S1", "S2")]
    told = [guest.get(path).data for path in asked]
    told += [guest.get(path, headers={"Accept": "text/html"}).data for path in asked]
    told += [guest.post("/api/names", json={"version": "", "prototype": 0, "name": "a"}, headers=OWN).data]
    assert any(b"S0.tif" in text for text in told)
    assert any(b"far.h5" in text for text in told)
    assert [text for text in told if bytes(cohort_folder.parent) in text] == []
