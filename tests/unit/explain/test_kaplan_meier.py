"""Curves and tests by proportions against lifelines; ties and missing values are handled and reported."""

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from known_regions import contents, csv_rows
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test

from cli.running import strict_json
from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.explain.kaplan_meier import by_patient, compare
from panther.explain.shares import Proportions, as_proportions

PATIENTS, C = 60, 4


def proportions(seed=0):
    """C2 is absent everywhere; C3 is absent in three quarters of the patients."""
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.ones(3), PATIENTS)
    pi[rng.permutation(PATIENTS)[: PATIENTS * 3 // 4], 2] = 0
    pi /= pi.sum(1, keepdims=True)
    return np.stack([pi[:, 0], pi[:, 1], np.zeros(PATIENTS), pi[:, 2]], 1)


@pytest.fixture
def folder(tmp_path):
    """Table and proportions of patients with one slide each; much of C0 is bad for them."""
    rng, pi = np.random.default_rng(1), proportions()
    death, censoring = rng.exponential(1000 * np.exp(-3 * pi[:, 0])), rng.exponential(900, PATIENTS)
    time, event = np.ceil(np.minimum(death, censoring) / 20) * 20, death <= censoring  # with ties
    rows = [f"P{i:02d},S{i:02d},{time[i]:.0f},{int(not event[i])}" for i in range(PATIENTS)]
    (tmp_path / "t.csv").write_text("case_id,slide_id,os_survival_days,os_censorship\n" + "\n".join(rows) + "\n")
    rows = [f"S{i:02d},P{i:02d}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(pi)]
    (tmp_path / "pi.csv").write_text("slide,patient,C0,C1,C2,C3\n" + "\n".join(rows) + "\n")
    return tmp_path


def cohort(folder):
    return load_cohort(folder / "t.csv", survival="os")


def test_curves_of_tertiles_and_p_values_are_those_of_lifelines(folder):
    patients = by_patient(as_proportions(folder / "pi.csv"), cohort(folder))
    time, event = patients.survival.time, patients.survival.event
    for row in compare(patients).prototypes:
        pi = patients.pi[:, row["prototype"]]
        low, high = np.quantile(pi, [1 / 3, 2 / 3])
        names = np.select([pi <= low, pi <= high], ["low", "middle"], "high")
        theirs = multivariate_logrank_test(time, names, event)
        assert (row["statistic"], row["p"]) == pytest.approx((theirs.test_statistic, theirs.p_value), rel=1e-7)
        sizes = dict(zip(*np.unique(names, return_counts=True), strict=True))
        assert {group["group"]: group["n"] for group in row["groups"]} == sizes
        for group in row["groups"]:
            member = names == group["group"]
            fit = KaplanMeierFitter().fit(time[member], event[member])
            np.testing.assert_allclose(group["survival"], fit.survival_function_at_times(group["time"]), atol=1e-12)


def test_equal_proportions_stay_together_and_prototypes_without_groups_are_noted(folder):
    patients = by_patient(as_proportions(folder / "pi.csv"), cohort(folder))
    result = compare(patients)
    assert [row["prototype"] for row in result.prototypes] == [0, 1, 3]
    groups = result.prototypes[2]["groups"]
    assert [group["group"] for group in groups] == ["low", "high"]
    assert (groups[0]["n"], groups[0]["largest_pi"]) == (PATIENTS * 3 // 4, 0)
    assert {note[:2] for note in result.notes} >= {"C2", "C3"}
    pi = patients.pi
    dust = np.random.default_rng(5).uniform(1e-23, 1e-14, pi.shape)  # of an absent prototype is not more of it
    assert compare(patients._replace(pi=pi + (pi == 0) * dust)).prototypes[2]["groups"][0]["n"] == groups[0]["n"]
    with pytest.raises(InputError, match=r"^proportions: "):
        compare(patients._replace(pi=np.full_like(pi, 0.25)))


def test_slides_of_a_patient_count_by_their_patches(tmp_path):
    rows = ("A,a1,10,0", "A,a2,10,0", "B,b,20,0", "D,d,5,1")
    (tmp_path / "t.csv").write_text("case_id,slide_id,os_survival_days,os_censorship\n" + "\n".join(rows) + "\n")
    pi = np.array([[0.2, 0.8], [0.8, 0.2], [0.5, 0.5]])
    weighted = by_patient(Proportions(["a1", "a2", "b"], pi, np.array([300.0, 100, 50])), cohort(tmp_path))
    assert weighted.ids == ("A", "B")
    np.testing.assert_allclose(weighted.pi, [[0.35, 0.65], [0.5, 0.5]])
    assert len(weighted.notes) == 1  # D has no proportions
    unweighted = by_patient(Proportions(["a1", "a2", "b"], pi, None), cohort(tmp_path))
    np.testing.assert_allclose(unweighted.pi[0], [0.5, 0.5])
    by_name = by_patient(Proportions(["B", "A"], pi[:2], None), cohort(tmp_path))  # embedded by patient
    np.testing.assert_allclose(by_name.pi, pi[[1, 0]])
    with pytest.raises(InputError, match="3 patients"):
        by_patient(Proportions(["x"], pi[:1], None), cohort(tmp_path))


def test_a_table_of_proportions_may_hold_patches_and_other_columns_that_begin_with_c(tmp_path):
    path = tmp_path / "pi.csv"
    path.write_text("slide,patient,Centre,n_patches,C0,C1\na,A,x,30,0.25,0.75\nb,A,y,10,1,0\n")
    table = as_proportions(path)
    assert (table.pi.tolist(), table.patches.tolist()) == ([[0.25, 0.75], [1, 0]], [30, 10])
    for bad in ("", "0", "many", "inf"):
        path.write_text(f"slide,n_patches,C0\na,3,1\nb,{bad},1\n")
        with pytest.raises(InputError, match="line 3"):
            as_proportions(path)


def test_the_command_writes_the_same_files_again_and_reads_embeddings_too(folder, run):
    (folder / "n.yaml").write_text("C0: tumour $x$\n")
    usual = ("--table", "t.csv", "--survival", "os", "--names", "n.yaml", "-o")
    for name in "ab":
        out, err = run("kaplan-meier", "pi.csv", *usual, name)
    assert "60 patients" in out
    assert "C2" in err
    assert list(contents(Path("a"))) == ["km.csv", "km.json", "km.png"]
    assert contents(Path("a")) == contents(Path("b"))
    content = strict_json(Path("a/km.json").read_text())
    first = content["prototypes"][0]
    assert (content["format"], first["prototype"], first["name"]) == (1, 0, "tumour $x$")
    assert [g["group"] for g in first["groups"]] == ["low", "middle", "high"]
    group = first["groups"][0]
    assert len({len(group[k]) for k in ("time", "survival", "low", "high")}) == 1
    assert (group["time"][0], group["survival"][0]) == (0, 1)
    assert len(csv_rows(Path("a/km.csv"))) == 8
    obs = pd.DataFrame({"n_patches": 9}, index=[f"S{i:02d}" for i in range(PATIENTS)])
    anndata.AnnData(proportions(), obs=obs, obsm={"pi": proportions()}).write_h5ad("e.h5ad")
    run("kaplan-meier", "e.h5ad", *usual, "c")
    assert Path("c/km.csv").read_bytes() == Path("a/km.csv").read_bytes()


def test_patients_that_are_left_out_are_reported_and_written(folder, run):
    head, *rows = [line.split(",") for line in Path("t.csv").read_text().splitlines()]
    zero = [[*row[:2], "0", row[3]] for row in rows[:5]]
    unknown = [[*row[:3], ""] for row in rows[5:8]]
    Path("d.csv").write_text("\n".join(",".join(row) for row in (head, *zero, *unknown, *rows[8:])))
    out, _ = run("kaplan-meier", "pi.csv", "--table", "d.csv", "--survival", "os", "-o", "x")
    written = strict_json(Path("x/km.json").read_text())
    assert written["time_unit"] == "days"
    for text in (out, " ".join(written["notes"])):
        assert all(part in text for part in ("d.csv: 52 samples", "5 rows", "3 rows"))


def test_impossible_requests_are_refused(folder, refused):
    lines = Path("pi.csv").read_text().splitlines()
    Path("nan.csv").write_text("\n".join([lines[0], "S00,P00,0.1,nan,0,0", *lines[2:]]))
    Path("twice.csv").write_text("\n".join([*lines, lines[1]]))
    Path("odd.csv").write_text("name,share\na,1\n")
    Path("empty.csv").write_text("")
    for file, endpoint, culprit in (
        ("nan.csv", "os", "line 2"),
        ("twice.csv", "os", "line 62"),
        ("odd.csv", "os", "expected slide, C0, C1"),
        ("empty.csv", "os", "empty.csv"),
        ("none.csv", "os", "none.csv"),
        ("t.txt", "os", "t.txt"),
        ("pi.csv", "dss", "dss_survival_days"),
    ):
        refused(culprit, "kaplan-meier", file, "--table", "t.csv", "--survival", endpoint)
