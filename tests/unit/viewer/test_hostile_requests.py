"""Hostile parameters, bodies and names: nothing else is read or written, and data stays data."""

from viewer.asking import entered
from viewer.attacks import HOSTILE, OWN, address, attacks, opened_files, routes
from viewer.small_cohort import SECRET


def test_no_route_reads_anything_outside_the_opened_folders_whatever_its_parameters_say(app, guest, outside):
    tried = 0
    for rule in routes(app):
        for attack in attacks(guest, rule):
            with opened_files() as files:
                response = guest.get(attack[0], query_string=attack[1])
            tried += 1
            assert response.status_code < 500, (attack, response.data[:300])
            assert SECRET not in response.data, attack
            assert b"root:" not in response.data, attack
            assert not [file for file in files if file.startswith(str(outside)) or file == "/etc/passwd"], attack
            if response.mimetype == "text/html":
                assert b"alert(1)" not in response.data, attack
            assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert tried > 500


FIELDS = ("prototype", "name", "note", "group", "colour", "seen", "set", "slides", "path")
BODIES = (
    *(dict.fromkeys(FIELDS, value) for value in HOSTILE),
    {"prototype": 0, "name": "../outside/x", "seen": {}, "path": "/etc/passwd", "file": "../outside/x"},
    {"prototype": [[[]]], "slides": {"a": 1}, "a": None, "b": 1e308},
    [],
    "text",
    7,
    None,
)


def test_nothing_but_the_names_file_is_ever_written(app, guest, outside, cohort_folder):
    def files() -> dict[str, bytes]:
        paths = [path for path in cohort_folder.parent.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in paths if path.parent != cohort_folder or path.stem != "names"}

    before = files()
    for rule in routes(app, "POST"):
        for body in BODIES:
            response = guest.post(address(rule), json=body, headers=OWN)
            assert response.status_code < 500, (rule.rule, body, response.data[:300])
        broken = guest.post(address(rule), data=b'{"a": ', headers=OWN, content_type="application/json")
        assert broken.status_code < 500
        deep = b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
        assert guest.post(address(rule), data=deep, headers=OWN, content_type="application/json").status_code < 500
    assert files() == before


SCRIPT = "<script>alert(1)</script>"


def test_a_slide_with_a_hostile_name_is_data_everywhere(cohort_folder, tmp_path):
    name = "<img src=x onerror=alert(1)> %2e&?#'\""
    (cohort_folder / "features" / "S5.h5").rename(cohort_folder / "features" / f"{name}.h5")
    (cohort_folder / "features" / "S4.h5").rename(cohort_folder / "features" / "-...h5")
    (cohort_folder / "names.yaml").write_text(f"C0: {SCRIPT}\n")
    client = entered(cohort_folder)
    names = [slide["name"] for slide in client.get("/api/contents").get_json()["slides"]]
    assert {name, "-.."} <= set(names)
    for rule in routes(client.application):
        for slide in (name, "-..", ".."):
            response = client.get(address(rule, name=slide, slide=slide))
            assert response.status_code < 500, (rule.rule, response.data[:300])
            if response.mimetype in ("text/html", "image/svg+xml"):
                assert b"<script>alert" not in response.data
                assert b"<img src=x" not in response.data
