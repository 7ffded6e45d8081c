"""No server path reaches the browser: messages name files without their folders; the terminal has the whole sentence."""

import logging
import shutil
from pathlib import Path

import pytest

from panther.viewer.contents import Inputs, find_contents
from panther.viewer.server import json_ready, path_redactor
from viewer.asking import entered
from viewer.attacks import OWN, address, routes

PLACES = (Path("/data/my job"), Path("/data/my job/features"), Path("/data/tables/cohort.csv"), Path("/"), Path("demo"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/my job/slides/S1.tif: it is damaged.", "S1.tif: it is damaged."),
        ("/data/my job/features/S 1.h5: it is damaged.", "S 1.h5: it is damaged."),
        ("/data/my job/two words/S1.tif: no.", "two words/S1.tif: no."),
        ("/data/my job: nothing (see '/data/my job').", "my job: nothing (see 'my job')."),
        ("/data/tables/cohort.csv: 3 slides.", "cohort.csv: 3 slides."),
        ("cannot identify '/home/me/S1.tif' (a).", "cannot identify 'S1.tif' (a)."),
        ("`panther view FOLDER --allow-folder /mnt/a/b` follows.", "`panther view FOLDER --allow-folder b` follows."),
        ("/data/my jobs/x/y.h5", "my jobs/x/y.h5"),  # another folder; after a blank nobody knows where a path ends
        ("demo/slides/S1.tif: it is damaged.", "demo/slides/S1.tif: it is damaged."),
        ("3 / 4 of the slides and/or patches, 20 px/um/s", "3 / 4 of the slides and/or patches, 20 px/um/s"),
        ("There is no slide '../../x/y' here; http://127.0.0.1/a/b", "There is no slide '../../x/y' here; http://127.0.0.1/a/b"),
    ],
)  # fmt: skip
def test_folders_are_removed_from_texts(text, shown):
    assert path_redactor(PLACES)(text) == shown


def test_the_whole_message_is_logged_once(caplog):
    redact = path_redactor(PLACES)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            json_ready(["/data/my job/S1.tif: it is damaged.", "S2.tif: damaged.", "/data/a/value of a table"], redact)
    assert caplog.messages == ["/data/my job/S1.tif: it is damaged."]


def test_all_texts_of_an_answer_are_shortened_but_not_peoples_notes():
    text = "/data/my job/S1.tif"
    answer = {"note": text, "why": text, "here": {"rows": [(text, 1.5)]}, "failures": {text: text}}
    expected = {"note": text, "why": "S1.tif", "here": {"rows": [["S1.tif", 1.5]]}, "failures": {"S1.tif": "S1.tif"}}
    assert json_ready(answer, path_redactor(PLACES)) == expected


def test_a_table_of_paths_shows_no_path(cohort_folder):
    """As our summary.csv, taken for a clinical table."""
    table = cohort_folder / "cohort.csv"
    head, *rows = table.read_text().splitlines()
    table.write_text("\n".join([f"{head},/srv/secret/file", *(f"{row},/srv/secret/{row[:5]}" for row in rows)]))
    client = entered(cohort_folder)
    points = "cohort/points?plane=pca:pi&colour=column:file"
    for path in ("contents", "cohort", "cohort?level=patients", points, "prototypes"):
        assert b"secret" not in client.get(f"/api/{path}").data


def test_no_answer_holds_the_folder_of_damaged_files(cohort_folder, outside):
    """Every route, over a folder in which everything is damaged and which was opened by a link to it."""
    shutil.copy(cohort_folder / "features" / "S0.h5", outside / "far.h5")
    (cohort_folder / "far.h5").symlink_to(outside / "far.h5")
    linked = cohort_folder.with_name("by a link")
    linked.symlink_to(cohort_folder)
    guest = entered(find_contents(linked, Inputs(table=linked / "cohort.csv")))
    for name in ("slides/S0.tif", "features/S1.h5", "slides.h5ad", "names.yaml"):
        (cohort_folder / name).write_bytes(b"x")
    (cohort_folder / "slides" / "S2.tif").unlink()
    paths = [*map(address, routes(guest.application)), "/api/slides/S0/patches/0/similar?where=cohort&progress=1"]
    paths += [path.replace("S0", name) for path in paths for name in ("S1", "S2")]
    answers = [guest.get(path).data for path in paths]
    answers += [guest.get(path, headers={"Accept": "text/html"}).data for path in paths]
    answers += [guest.post("/api/names", json={"seen": {}, "prototype": 0, "name": "a"}, headers=OWN).data]
    assert any(b"S0.tif" in answer for answer in answers)
    assert any(b"far.h5" in answer for answer in answers)
    assert [answer for answer in answers if bytes(cohort_folder.parent) in answer] == []
