"""Any representation is a row: given vectors, plain pooling and rows side by side, on who has them, and models that predict new files."""

import numpy as np
import pandas as pd
import pytest

import panther
from panther.errors import InputError, LeftOutWarning
from panther.study.file import parse_study

RNG = np.random.default_rng(0)
SLIDES = [f"S{i:02d}" for i in range(36)]
PATIENTS = [f"P{i // 2:02d}" for i in range(36)]  # two slides each
LABELS = [["a", "b"][(i // 2) % 2] for i in range(36)]
SIGNAL = np.array([[label == "b"] for label in LABELS], float)
BAGS = {s: RNG.normal(0.3 * SIGNAL[i], 1, (12, 4)).astype(np.float32) for i, s in enumerate(SLIDES)}
VECTORS = (RNG.normal(size=(36, 6)) + 2 * SIGNAL).astype(np.float32)
TABLE = pd.DataFrame({"slide_id": SLIDES, "case_id": PATIENTS, "subtype": LABELS})
BASE = {"name": "rows", "table": TABLE, "task": {"label": "subtype"}, "heads": ["probe"]}
BASE |= {"splits": {"k": 2}, "n_prototypes": [2], "bootstrap": 20}


def written(path, names=SLIDES, vectors=VECTORS, column="slide_id"):
    frame = pd.DataFrame(vectors, columns=[f"f{j}" for j in range(vectors.shape[1])])
    frame.assign(**{column: names}).to_csv(path, index=False)
    return str(path)


def test_precomputed_vectors_pooling_and_rows_side_by_side_come_to_one_table(tmp_path):
    titan = written(tmp_path / "titan.csv", SLIDES[:-4], VECTORS[:-4])  # the last two patients have none
    methods = ["panther", "mean", {"name": "pca", "components": 2}, {"concat": ["panther", "titan"]}]
    with pytest.warns(LeftOutWarning, match="4 slides of the study have no vector of titan"):
        results = panther.run_study({**BASE, "features": BAGS, "embeddings": {"titan": titan}, "methods": methods})
    rows = results.summary.groupby("method").first()
    assert set(rows.index) == {"panther", "mean", "pca (components 2)", "panther + titan", "titan"}
    assert rows.loc["titan", "encoder"] == "given"
    assert rows.loc[["mean", "titan"], "n_prototypes"].tolist() == [0, 0]
    assert rows["patients"].to_dict() == dict.fromkeys(rows.index, 18) | {"titan": 16, "panther + titan": 16}
    assert any("4 slides of the study have no vector of titan" in why for why in results.run.failures.values())
    assert any("averaged (16 patients)" in note for note in results.run.population.notes)
    compared = results.comparisons
    assert set(compared["method"]) == set(rows.index) - {"panther"}

    # on the patients that both have: the difference is that of both rows' predictions of them
    both = results.predictions[~results.predictions["patient"].isin(["P16", "P17"])]

    def accuracy(method):
        selected = both[both["method"] == method].groupby("fold")
        return selected.apply(_balanced_accuracy, include_groups=False).mean()

    result = compared[(compared["method"] == "titan") & (compared["metric"] == "balanced_accuracy")][
        "difference"
    ].item()
    assert result == pytest.approx(accuracy("titan") - accuracy("panther"))


def _balanced_accuracy(part):
    right = (part["probability_b"] > 0.5).map({True: "b", False: "a"}) == part["label"]
    return right.groupby(part["label"]).mean().mean()


def test_a_study_of_precomputed_vectors_alone_and_its_models_predict_new_files(tmp_path):
    inputs = {
        "titan": written(tmp_path / "titan.csv"),
        "prism": written(tmp_path / "prism.csv", sorted(set(PATIENTS)), VECTORS[::2, :3], "case_id"),  # of patients
    }
    results = panther.run_study({**BASE, "embeddings": inputs, "methods": [{"concat": ["titan", "prism"]}]})
    assert set(results.summary["method"]) == {"titan", "prism", "titan + prism"}
    tested = results.predictions.set_index(["method", "fold", "sample"])["probability_b"].sort_index()
    for method, places in (("titan", ["titan"]), ("titan + prism", ["titan", "prism"])):
        model = results.model(fold=0, method=method)
        new = panther.predict(model, None, TABLE, embeddings={name: inputs[name] for name in places}).table
        new = new.set_index("sample")["probability_b"]
        selected = tested.loc[method, 0]
        np.testing.assert_allclose(new.loc[selected.index], selected, rtol=1e-4)
    with pytest.raises(InputError, match="reads vectors of 'prism'"):
        panther.predict(model, None, TABLE, embeddings={"titan": inputs["titan"]})
    with pytest.raises(InputError, match="reads no vectors of 'titn'; did you mean 'titan'"):
        panther.predict(model, None, TABLE, embeddings={"titn": inputs["titan"]})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"methods": ["panther"]}, "'panther' is made of patches"),
        ({"methods": [{"concat": ["titan"]}]}, "two rows or more"),
        ({"methods": [{"concat": ["titan", "titan"]}]}, "'titan' is repeated"),
        ({"methods": [{"concat": ["titan", "tita"]}]}, "did you mean 'titan'"),
        ({"methods": [{"concat": ["titan", "abmil"]}]}, "is a network"),
        ({"methods": [{"concat": ["titan", "prism"], "k": 3}]}, "no setting 'k'"),
        ({"reference": "titn"}, "did you mean 'titan'"),
        ({"embeddings": {}, "features": {}}, "nothing to compare"),
        ({"features": {"f": "f"}, "methods": [{"name": "pca", "components": 0}]}, "components: found 0"),
    ],
)
def test_rows_that_cannot_be_are_refused_before_anything_runs(wrong, words):
    study = {**BASE, "table": "t.csv", "embeddings": {"titan": "t.csv", "prism": "p.csv"}}
    with pytest.raises(InputError, match=words):
        parse_study({**study, **wrong})


def test_names_that_match_nothing_and_vectors_as_features_are_refused(tmp_path):
    strangers = written(tmp_path / "v.csv", [f"X{i}" for i in range(36)])
    with pytest.raises(InputError, match=r"none of its names is a slide of the table.*'X0'.*'S00'"):
        panther.run_study({**BASE, "embeddings": {"titan": f"{strangers}#slide_id"}})
    bags = {name: row[None] for name, row in zip(SLIDES, VECTORS, strict=True)}
    with pytest.raises(InputError, match="use embeddings"):
        panther.run_study({**BASE, "task": {"label": "subtype", "level": "slide"}, "features": bags})
