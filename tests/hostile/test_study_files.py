"""Study files that mean harm or a mistake: refused with the file's name, before anything is computed."""

import pytest
import yaml

from hostile.judging import assert_goes_on, assert_refused, run_here
from hostile.lab import STUDY

RUN = ("run", "study.yaml", "-o", "study", "-j", "1")
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{c}: &{c} [{', '.join([f'*{b}'] * 9)}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True)
)
OPTIONS_BOMB = "".join(f"    {line}\n" for line in BOMB.splitlines())

MISTAKES = {
    "subgroups": ({"evaluate_by": "nope"}, "nope"),
    "subgroups, nearly": ({"evaluate_by": "subtyp"}, "did you mean 'subtype'"),
    "label": ({"task": {"label": "subtpe"}}, "did you mean 'subtype'"),
    "column of splits": ({"splits": {"column": "fold"}}, "fold"),
    "column as folder": ({"splits": "subtype"}, "subtype: "),
    "folds of one": ({"splits": {"column": "slide_id"}}, "slide_id"),
    "no features": ({"features": {"lab": "feats", "other": "nowhere"}}, "nowhere"),
    "no number of prototypes": ({"n_prototypes": [float("nan")]}, "n_prototypes"),
    "seed of training": ({"mil_training": {"seed": 2**63}}, "seed"),
    "centre": ({"prototypes": {"centre": "x"}}, "prototypes: centre"),
    "steps": ({"methods": [{"name": "panther", "steps": 1e9}]}, "steps"),
    "column of subgroups": ({"evaluate_by": 3}, "evaluate_by: "),
    "no folder": ({"features": {"lab": 3}}, "features.lab: "),
    "width": ({"methods": [{"name": "abmil", "hidden": float("nan")}]}, "hidden"),
}
TEXTS = {
    "grows": (yaml.safe_dump(STUDY) + BOMB, "anchors"),
    "grows in options": (
        yaml.safe_dump({k: v for k, v in STUDY.items() if k != "methods"})
        + "methods:\n  - name: panther\n"
        + OPTIONS_BOMB,
        "anchors",
    ),
    "holds itself": (yaml.safe_dump(STUDY) + "training: &t {epochs: *t}\n", "contains itself"),
    "nested": (yaml.safe_dump(STUDY) + "x: " + "[" * 3000 + "]" * 3000, "nested"),
    "runs code": (yaml.safe_dump(STUDY) + "x: !!python/object/apply:os.system ['touch harm']\n", "not YAML"),
    "key twice": (yaml.safe_dump(STUDY) + "seeds: [1]\nseeds: [2]\n", "'seeds' is there twice"),
    "Latin-1": ((yaml.safe_dump(STUDY) + "# caf\xe9\n").encode("latin-1"), "UTF-8"),
    "not text": (b"\x00\x01\x02", "YAML"),
    "empty": (b"", "study new"),
    "numbers as keys": (b"1: 2\n", "study new"),
    "huge": (b"# " + b"x" * 2_000_000, "MB"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_computed(lab, mistake):
    changes, word = MISTAKES[mistake]
    (lab / "study.yaml").write_text(yaml.safe_dump({**STUDY, **changes}))
    assert_refused(done := run_here(RUN, lab), word)
    assert ".bool" not in done.err  # of a type's alternatives
    assert not list(lab.glob("study/cache/*"))


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_is_no_study_is_refused_with_the_name_of_the_file(lab, text):
    content, word = TEXTS[text]
    (lab / "study.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(run_here(RUN, lab), "study.yaml", word)
    assert not (lab / "harm").exists()
    assert not list(lab.glob("study/cache/*"))


def damaged(path, how):
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "other": b"<html>not found</html>"}[how])


@pytest.mark.parametrize("how", ["empty", "cut", "other"])
@pytest.mark.parametrize("kind", ["prototypes-*", "embeddings-*.npy", "embeddings-*.json", "model-*"])
def test_a_damaged_file_of_the_cache_is_named_and_made_anew(lab, kind, how):
    assert run_here(RUN, lab).code == 0
    sound = {name: (lab / "study" / name).read_bytes() for name in ("table.md", "metrics.csv", "run.json")}
    victim = sorted((lab / "study/cache").glob(kind))[0]
    before = victim.read_bytes()
    damaged(victim, how)
    done = run_here(RUN, lab)
    assert done.code == 0, done.text
    assert victim.with_suffix("").name in done.err, done.text
    assert "made anew" in done.err
    assert victim.read_bytes() == before
    assert {name: (lab / "study" / name).read_bytes() for name in sound} == sound
    assert run_here(RUN, lab).err == ""


@pytest.mark.parametrize("how", ["empty", "other"])
def test_an_unreadable_feature_set_is_reported_and_the_others_go_on(lab, how):
    (lab / "broken").mkdir()
    for file in sorted((lab / "feats").glob("*.h5"))[:6]:  # it even lacks half of the slides
        (lab / "broken" / file.name).write_bytes(b"" if how == "empty" else b"<html>not found</html>")
    features = {"broken": "broken", "lab": "feats"}
    (lab / "study.yaml").write_text(yaml.safe_dump({**STUDY, "features": features}))
    done = run_here(RUN, lab)
    assert_goes_on(done, ["broken"])
    assert "12 samples" in done.out, done.text
    assert "| ProtoCounts + probe |" in done.out


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"features": {"bare": "bare", "lab": "feats"}}, "bare"),
        ({"external": {"elsewhere": {"table": "table.csv", "features": {"lab": "bare"}}}}, "elsewhere"),
    ],
)
def test_a_folder_without_features_is_named_and_the_study_goes_on(lab, changes, lost):
    (lab / "bare").mkdir()
    (lab / "study.yaml").write_text(yaml.safe_dump({**STUDY, **changes}))
    assert_goes_on(run_here(RUN, lab), [lost])
