"""Names edited in the page: saved at once, never over a change made elsewhere, and undone on request."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from panther.errors import InputError
from panther.explain.names import Naming, as_namings
from panther.viewer import names as viewer_names
from panther.viewer.contents import find_contents
from panther.viewer.names import ConflictError, NamesBook
from panther.viewer.workbench import Workbench

ORIGIN = {"Origin": "http://localhost"}


@pytest.fixture
def book(tmp_path: Path) -> NamesBook:
    (tmp_path / "names.yaml").write_text("# ours\nC0: stroma\nC1: tumour nest\n")
    return NamesBook(tmp_path / "names.yaml", 4)


def change(book: NamesBook, prototype: int, **fields: str) -> None:
    """Change fields as they are at present."""
    present = book.state().namings.get(prototype, Naming())
    book.change(prototype, fields, {field: getattr(present, field) for field in fields})


def test_a_change_is_in_the_file_at_once_and_can_be_undone(book, tmp_path):
    text = book.path.read_text()
    change(book, 1, name="nest", note="solid")
    assert as_namings(book.path, 4)[1] == Naming("nest", "solid")
    change(book, 1, colour="#abc")
    assert book.next_undo == "colour of C1"
    book.undo()
    assert as_namings(book.path, 4)[1] == Naming("nest", "solid")
    book.undo()
    assert book.path.read_text() == text
    with pytest.raises(InputError, match="nothing to undo"):
        book.undo()
    new = NamesBook(tmp_path / "new" / "names.yaml", 2)
    change(new, 0, name="fat")
    assert as_namings(new.path, 2) == {0: Naming("fat")}
    new.undo()
    assert as_namings(new.path, 2) == {}


def test_what_others_changed_is_kept_and_the_same_field_is_a_conflict(book):
    book.path.write_text("# theirs\nC0: {name: stroma, note: loose}\nC1: tumour nest\nC2: fat\n")
    book.change(0, {"name": "capsule"}, {"name": "stroma"})
    book.change(3, {"group": "glass"}, {"group": ""})
    text = book.path.read_text()
    assert text.startswith("# theirs\n")
    assert as_namings(book.path, 4) == {
        0: Naming("capsule", "loose"), 1: Naming("tumour nest"), 2: Naming("fat"), 3: Naming(group="glass"),
    }  # fmt: skip
    with pytest.raises(ConflictError, match="'capsule'; yours, 'fibrous'"):
        book.change(0, {"name": "fibrous"}, {"name": "stroma"})
    book.change(0, {"name": "capsule"}, {"name": "stroma"})  # both mean the same
    assert (book.path.read_text(), book.next_undo) == (text, "group of C3")


def test_undo_leaves_what_others_changed(book):
    change(book, 0, name="capsule")
    book.path.write_text(book.path.read_text() + "C3: fat\n")
    book.undo()
    assert as_namings(book.path, 4) == {0: Naming("stroma"), 1: Naming("tumour nest"), 3: Naming("fat")}
    change(book, 0, name="capsule")
    book.path.write_text("C0: fibrous\n")
    with pytest.raises(ConflictError, match="that change stays"):
        book.undo()
    assert book.path.read_text() == "C0: fibrous\n"


def test_two_sessions_may_change_one_file_at_the_same_time(book):
    def rename(first: int) -> None:
        session = NamesBook(book.path, 100)
        for prototype in range(first, first + 6):
            change(session, prototype, name=f"n{prototype}")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(rename, (2, 10)))
    namings = as_namings(book.path, 100)
    numbers = (*range(2, 8), *range(10, 16))
    assert {c: namings[c].name for c in numbers} == {c: f"n{c}" for c in numbers}
    assert [file.name for file in book.path.parent.iterdir()] == ["names.yaml"]


def test_wrong_changes_are_refused(book):
    with pytest.raises(InputError, match="colour"):
        change(book, 0, colour="red")
    with pytest.raises(InputError, match="no prototype C4"):
        change(book, 4, name="a")


def test_a_damaged_file_is_never_written(book):
    book.path.write_text("C9: far\n")
    assert "C9" in book.state().problem
    with pytest.raises(InputError, match="C9"):
        change(book, 0, name="a")
    assert book.path.read_text() == "C9: far\n"


def test_where_nothing_can_be_written_nothing_is_lost(book, monkeypatch, tmp_path):
    text = book.path.read_text()
    book.path.chmod(0o444)
    with pytest.raises(InputError, match="read-only"):
        change(book, 0, name="a")
    book.path.chmod(0o644)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", lambda *_, **__: full())
        with pytest.raises(InputError, match="No space left"):
            change(book, 0, name="a")
    monkeypatch.setattr(viewer_names, "write_text", full)
    with pytest.raises(InputError, match="No space left"):
        change(book, 0, name="a")
    assert (book.path.read_text(), book.next_undo) == (text, "")
    assert [file.name for file in tmp_path.iterdir()] == ["names.yaml"]
    linked = NamesBook(tmp_path / "link.yaml", 4)
    linked.path.symlink_to(book.path)
    with pytest.raises(InputError, match="is a link"):
        change(linked, 0, name="a")


def test_names_through_the_routes(client: FlaskClient, cohort_folder: Path):
    state = client.get("/api/names").get_json()
    assert [one["title"] for one in state["prototypes"]] == ["C0 stroma", "C1 tumour nest", "C2"]
    assert state["can_undo"] is False
    hostile = "<script>alert(1)</script>\n\x00: # '"
    seen = dict.fromkeys(("name", "colour", "group"), "")
    body = {"seen": seen, "prototype": 2, "name": hostile, "colour": "#010203", "group": "x"}
    answer = client.post("/api/names", json=body, headers=ORIGIN)
    assert answer.status_code == 200
    row = answer.get_json()["prototypes"][2]
    assert (row["name"], row["colour"], row["group"]) == ("<script>alert(1)</script> : # '", "#010203", "x")
    assert as_namings(cohort_folder / "names.yaml", 3)[2] == Naming(row["name"], "", "#010203", "x")
    stale = client.post("/api/names", json={**body, "name": "other"}, headers=ORIGIN)
    assert stale.status_code == 409
    assert "yours, 'other'" in stale.get_json()["error"]
    assert stale.get_json()["prototypes"][2]["name"] == row["name"]
    undone = client.post("/api/names/undo", json={}, headers=ORIGIN)
    assert undone.get_json()["prototypes"][2]["title"] == "C2"


def test_a_wrong_body_is_refused_and_nothing_is_written(client: FlaskClient, cohort_folder: Path):
    before = (cohort_folder / "names.yaml").read_bytes()
    fields = {"set": "else"}, {"path": "x"}, {"name": 3}, {"name": "a" * 201}, {"colour": "red"}
    bodies = [{"seen": {"name": "b"}, "prototype": 0, "name": "a"} | wrong for wrong in fields]
    for body in ([], {}, {"prototype": "C1"}, {"prototype": True, "name": "a"}, *bodies):
        answer = client.post("/api/names", json=body, headers=ORIGIN)
        assert answer.status_code in (404, 409, 422), body
        assert answer.get_json()["error"]
    assert (cohort_folder / "names.yaml").read_bytes() == before


def test_other_sets_are_known_by_their_numbers(cohort_folder: Path):
    (cohort_folder / "second").mkdir()
    (cohort_folder / "second" / "more.safetensors").write_bytes((cohort_folder / "prototypes.safetensors").read_bytes())
    bench = Workbench(find_contents(cohort_folder))
    assert bench.legend("prototypes")[1][0] == "C1 tumour nest"
    assert [title for title, _ in bench.legend("more")] == ["C0", "C1", "C2"]


def test_a_file_that_became_a_link_out_of_the_folders_is_not_read(cohort_folder: Path, tmp_path: Path):
    bench = Workbench(find_contents(cohort_folder))
    (tmp_path / "secret.yaml").write_text("C0: secret\n")
    (cohort_folder / "names.yaml").unlink()
    (cohort_folder / "names.yaml").symlink_to(tmp_path / "secret.yaml")
    assert bench.legend()[0][0] == "C0"
    assert "link out of the opened folders" in bench.names().state().problem
