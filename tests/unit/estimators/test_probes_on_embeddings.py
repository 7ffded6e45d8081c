"""The package's scaling and probes behind `Panther` in scikit-learn's pipelines."""

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline

from panther import EmbeddingClassifier, EmbeddingCox, EmbeddingScaler, InputError, Panther
from panther.estimators.probes import panther_parts
from panther.evaluation.survival_metrics import concordance


def tissue_bags(n: int = 60, seed: int = 0) -> tuple[list[torch.Tensor], np.ndarray]:
    """Bags of four tissues; the share of the first decides the class."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0, 2.0, (4, 8))
    labels = np.arange(n) % 2
    bags = []
    for label in labels:
        tissue = rng.choice(4, 50, p=[0.45, 0.15, 0.2, 0.2] if label else [0.15, 0.45, 0.2, 0.2])
        bags.append(torch.tensor(centres[tissue] + rng.normal(size=(50, 8)), dtype=torch.float32))
    return bags, labels


@pytest.fixture(scope="module")
def cohort():
    return tissue_bags()


def test_columns_are_found_from_the_numbers_of_panther(cohort):
    bags, _ = cohort
    for count in (3, 4, 9):
        model = Panther(count, random_state=0).fit(bags)
        rows = model.transform(bags)
        for given in (None, count):
            (found,) = panther_parts(rows, given)
            assert [c for c, statistic, _ in found.columns if statistic == "weight"] == list(range(count))
            assert len(found.columns) == rows.shape[1]


def test_other_rows_are_scaled_as_a_whole_and_a_wrong_number_of_prototypes_is_refused(cohort):
    bags, _ = cohort
    rows = Panther(4, readout="wa").fit_transform(bags)
    assert panther_parts(rows) is None
    assert EmbeddingScaler().fit_transform(rows).shape == rows.shape
    with pytest.raises(InputError, match="n_prototypes=3"):
        EmbeddingScaler(n_prototypes=3).fit(Panther(4).fit_transform(bags))


def test_the_probe_classifies_and_keeps_patients_together(cohort):
    bags, labels = cohort
    test, truth = tissue_bags(seed=1)
    names = np.array(["solid", "glandular"])[labels]
    patients = [f"p{i // 2}" for i in range(len(bags))]
    model = make_pipeline(Panther(4, random_state=0), EmbeddingClassifier())
    model.fit(bags, names, embeddingclassifier__groups=patients)
    probabilities = model.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert (model.predict(test) == np.array(["solid", "glandular"])[truth]).mean() > 0.8
    probe = model[-1].probe_
    assert set(probe.shares) == {"weight", "mean", "variance", "slide mean"}
    assert sum(probe.shares.values()) == pytest.approx(1.0)
    with pytest.raises(InputError, match="at least two patients"):
        EmbeddingClassifier().fit(model[0].transform(bags), names, groups=["one"] * len(bags))


def test_the_survival_probe_predicts_risk(cohort):
    bags, labels = cohort
    rows = Panther(4, random_state=0).fit_transform(bags)
    days = np.random.default_rng(0).exponential(100 * np.exp(-1.5 * labels))
    model = EmbeddingCox().fit(rows, np.column_stack([days, np.ones(len(days))]))
    risk = model.predict(rows)
    assert risk[labels == 1].mean() > risk[labels == 0].mean()
    follow_up = np.column_stack([days, np.arange(len(days)) % 3 > 0])
    assert model.score(rows, follow_up) == concordance(days, follow_up[:, 1] == 1, risk)
    with pytest.raises(InputError, match="expected"):
        EmbeddingCox().fit(rows, days)


@pytest.mark.parametrize("time", ["f8", "i4"])
def test_follow_up_may_be_the_structured_array_of_scikit_survival(time):
    x, days = np.random.default_rng(0).normal(size=(20, 4)), np.arange(1, 21)
    seen = days % 3 > 0
    y = np.array(list(zip(seen, days, strict=True)), dtype=[("Status", "?"), ("Survival", time)])
    plain = np.column_stack([days, seen])
    model, same = EmbeddingCox().fit(x, y), EmbeddingCox().fit(x, plain)
    np.testing.assert_array_equal(model.predict(x), same.predict(x))
    assert model.score(x, y) == same.score(x, plain)
    with pytest.raises(InputError, match="expected an event"):
        EmbeddingCox().fit(x, y[["Survival"]])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((9, 2), r"y\[3, 1\] is 2\.0"),
        ((9, np.nan), r"y\[3, 1\] is nan"),
        ((np.nan, 1), r"y\[3, 0\] is nan"),
        ((np.inf, 1), r"y\[3, 0\] is inf"),
        ((-1, 0), r"y\[3, 0\] is -1\.0"),
        (("soon", 1), "y: .*'soon'"),
    ],
)
def test_invalid_follow_up_is_refused_by_row(row, said):
    y = np.column_stack([np.arange(1.0, 11), np.ones(10)]).astype(object)
    y[3] = [float(v) if not isinstance(v, str) else v for v in row]
    x = np.random.default_rng(0).normal(size=(10, 4))
    with pytest.raises(InputError, match=said):
        EmbeddingCox().fit(x, y)
    with pytest.raises(InputError, match=r"shape \(10,\); expected \(10, 2\)"):
        EmbeddingCox().fit(x, y[:, 0])
