"""Clinical tables become cohorts: usual columns, reports and refusals."""

from pathlib import Path

import numpy as np
import pytest

from panther.cohort.load import load_cohort, make_cohort
from panther.cohort.spec import TaskSpec
from panther.errors import InputError
from panther.storage.clinical import Columns, read_clinical

LABEL = {"label": "label"}
TIMES = {"time": "days", "event": "event"}


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def csv(tmp_path):
    return lambda text: table(tmp_path / "t.csv", text)


def test_the_slides_of_a_patient_are_one_sample_and_ids_stay_strings(csv):
    cohort = load_cohort(csv("slide_id,case_id,label,stain\n003.svs,07,a,x\n001,07,a,y\n002,8,b,x\n"), **LABEL)
    assert [(s.id, s.slides, s.patient) for s in cohort.samples] == [("07", ("001", "003"), "07"), ("8", ("002",), "8")]
    assert cohort.target.names == ("a", "b")
    np.testing.assert_array_equal(cohort.target.labels, [0, 1])
    assert list(cohort.table.index) == ["07", "8"]
    assert dict(cohort.table["n_slides"]) == {"07": 2, "8": 1}
    assert "stain" not in cohort.table  # the slides of a patient disagree
    by_slide = load_cohort(csv("slide_id,case_id,label\n1,p,a\n2,p,b\n3,q,b\n"), **LABEL, level="slide")
    assert [(s.id, s.patient) for s in by_slide.samples] == [("1", "p"), ("2", "p"), ("3", "q")]
    np.testing.assert_array_equal(by_slide.target.labels, [0, 1, 1])


def test_patients_and_sites_are_read_from_tcga_barcodes(csv):
    text = "slide_id,label\nTCGA-AA-1234-01Z-00-DX1.X,a\nTCGA-AA-1234-01Z-00-DX2.Y,a\nTCGA-BB-9999-01Z-00-DX1.Z,b\n"
    cohort = load_cohort(csv(text), **LABEL)
    assert [(s.id, s.site, len(s.slides)) for s in cohort.samples] == [
        ("TCGA-AA-1234", "AA", 2),
        ("TCGA-BB-9999", "BB", 1),
    ]
    assert any("barcodes" in line for line in cohort.report.sentences())


def test_the_report_counts_missing_labels_and_features(csv):
    path = csv("slide_id,case_id,label\n1,p,a\n2,q,\n3,r,b\n4,s,[Not Available]\n5,t,a\n5,t,a\n")
    cohort = make_cohort(read_clinical(path), TaskSpec(**LABEL), {"1", "2", "3", "99"})
    report = cohort.report
    assert (report.rows, report.samples, report.duplicates, dict(report.dropped)) == (6, 2, 1, {"no label": 2})
    assert report.missing_features == ("5",)
    assert report.without_labels == ("2", "99")
    assert "2 rows were dropped: no label." in report.sentences()


def test_the_refusal_of_unmatched_features_names_a_missing_slide_column(csv):
    read = read_clinical(csv("sldie_id,case_id,label\n1,p,a\n2,q,b\n"))
    with pytest.raises(InputError, match=r"'1'\. .* has no slide column"):
        make_cohort(read, TaskSpec(**LABEL), {"1", "2"})


def test_slides_of_other_parts_of_a_split_are_not_called_unlabelled(csv):
    path = csv("slide_id,case_id,label,split\n1,p,a,train\n2,q,b,train\n3,r,a,test\n4,s,,train\n")
    report = make_cohort(read_clinical(path, "train"), TaskSpec(**LABEL), {"1", "2", "3", "4", "99"}).report
    assert report.without_labels == ("4", "99")
    assert f"1 slides are in {path} with another `split` and are left out, e.g. 3." in report.sentences()


@pytest.mark.parametrize(
    ("status", "rows", "column", "meaning"),
    [
        ("x_censorship", ("1", "0", "1"), "censorship", "(1 = censored): 1 events"),
        ("x_censorship", ("1.0", "0.0", "1.0"), "event", "(1 = event): 2 events"),
        ("vital_status", ("Alive", "Dead", "alive"), "event", "(Dead = event): 1 events"),
        ("vital_status", ("Alive", "Dead", "alive"), "censorship", "(Dead = event): 1 events"),
        ("x", ("0:LIVING", "1:DECEASED", "0:LIVING"), "event", "(1:DECEASED = event): 1 events"),
        ("x", ("0:DiseaseFree", "1:Recurred/Progressed", ""), "event", "(1:Recurred/Progressed = event): 1 events"),
        ("x", ("False", "True", "False"), "event", "(1 = event): 1 events"),
    ],
)
def test_the_report_states_the_polarity_of_the_status(csv, status, rows, column, meaning):
    lines = "".join(f"{i},{10 + i},{cell}\n" for i, cell in enumerate(rows))
    cohort = load_cohort(csv(f"slide_id,days,{status}\n{lines}"), time="days", **{column: status})
    assert cohort.report.outcome.startswith(f"days and {status} {meaning}")
    assert cohort.target.event[1] == (meaning != "(1 = event): 2 events")
    np.testing.assert_array_equal(cohort.target.time, [10, 11, 12][: len(cohort)])


def test_patients_that_differ_only_in_case_are_noted(csv):
    cohort = load_cohort(csv("slide_id,case_id,label\n1,P1,a\n2,p1,a\n3,Q,b\n4,P2,b\n5,p2,b\n"), **LABEL)
    assert len(cohort) == 5
    notes = [note for note in cohort.report.notes if "upper and lower case" in note]
    assert len(notes) == 1
    assert "P1 and p1 differ only in upper and lower case and count as two patients (2 such in all)" in notes[0]


@pytest.mark.parametrize(
    ("columns", "outcome"),
    [
        ("dss_survival_days,dss_censorship", {"survival": "dss"}),
        ("OS.time,OS", {"survival": "os"}),
        ("PFI_MONTHS,PFI_STATUS", {"survival": "pfi"}),
        ("DFS_MONTHS,DFS_STATUS", {"survival": "dfs"}),
        *((f"os_months,os_{status}", {"survival": "os"}) for status in ("event", "status", "censorship")),
        ("survival_months,censorship", {"time": "survival_months"}),
        ("dfi_survival_days,dfi_censorship", {"time": "dfi_survival_days"}),
    ],
)
def test_endpoints_are_found_by_their_usual_names(csv, columns, outcome):
    cohort = load_cohort(csv(f"slide_id,{columns}\n1,5,1\n2,6,0\n3,,0\n4,0,1\n"), **outcome)
    assert len(cohort) == 2
    assert sum(cohort.report.dropped.values()) == 2


def test_whole_numbers_are_classes_in_numeric_order(csv):
    cohort = load_cohort(csv("slide_id,isup_grade\n1,10.0\n2,2.0\n3,2\n"))
    assert cohort.target.names == ("2", "10")
    chosen = load_cohort(csv("slide_id,label\n1,b\n2,a\n3,c\n4,a\n"), classes=("b", "a"))
    np.testing.assert_array_equal(chosen.target.labels, [0, 1, 1])
    assert list(chosen.report.dropped.values()) == [1]


def test_columns_may_be_named(csv):
    text = "scan,who,hospital_no,label\n01,p,9,a\n02,p,9,a\n03,q,8,b\n"
    cohort = load_cohort(csv(text), **LABEL, columns=Columns("scan", "who", "hospital_no"))
    assert [(s.id, s.slides, s.site) for s in cohort.samples] == [("p", ("01", "02"), "9"), ("q", ("03",), "8")]


@pytest.mark.parametrize(
    ("text", "outcome", "culprit"),
    [
        ("slide_id,label\n1,a\n2,a\n", LABEL, "all 2 samples are of one class, a"),
        ("slide_id,label\n1,\n2,NA\n", LABEL, "none of the 2 rows has the label"),
        ("slide_id,days,event\n1,5,0\n2,6,0\n", TIMES, "none of the 2 samples has the event"),
        (
            "slide_id,days,event\n1,5,0\n2,-6,1\n",
            TIMES,
            r"days: 1 are not a number of at least 0, the first -6 in line 3",
        ),
        ("slide_id,days,event\n1,soon,0\n2,6,1\n", TIMES, r"not a number of at least 0, the first soon in line 2"),
        ("slide_id,days,event\n1,0,1\n2,nan,1\n", TIMES, "none of the 2 rows"),
        ("slide_id,days,event\n1,5,1\n2,6,2\n", TIMES, "event says 1, 2; expected 0 and 1"),
        (
            "slide_id,days,event\n1,5,1\n",
            {"survival": "dss"},
            "dss_survival_days and dss_censorship.*slide_id, days, event",
        ),
        ("slide_id,a\n1,x\n2,y\n", LABEL, "no label column 'label'; known are slide_id, a"),
        ("slide_id,a\n1,x\n2,y\n", {}, "no label among slide_id, a"),
        ("slide_id,label\n1,a\n1,b\n", LABEL, "1 slides have several rows that differ, e.g. 1"),
        ("slide_id,case_id,label\n1,p,a\n2,p,b\n", LABEL, "slides of patient p .* different labels, a, b"),
        ("slide_id,case_id,label\n1,p,a\n2,,b\n", LABEL, "1 rows have no case_id, the first is line 3"),
        ("name,label\n1,a\n2,b\n", LABEL, "neither a slide nor a patient column among name, label"),
        ("slide_id,label\n", LABEL, "no rows"),
        ("", LABEL, "not a readable table"),
        ("slide_id,label\n1,a\n2,b,y\n", LABEL, "not a readable table|cells but the header 2"),
        ("slide_id,label\n" + "".join(f"{i},{i / 7}\n" for i in range(20)), LABEL, "20 different labels"),
        ("slide_id,os_survival_days,died,dss_days\n1,5,1,4\n", {"event": "died"}, "several endpoints, dss, os"),
    ],
)
def test_bad_input_is_refused_in_one_line_that_names_it(csv, text, outcome, culprit):
    with pytest.raises(InputError, match=culprit) as caught:
        load_cohort(csv(text), **outcome)
    assert "t.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_features_of_a_patient_are_one_bag_and_y_is_as_scikit_learn_takes_it(csv):
    path = csv("slide_id,case_id,label,days,event,center\na1,a,x,5,1,L\nb1,b,y,6,0,M\na2.svs,a,x,5,1,L\nc1,c,y,9,1,M\n")
    bags = {name: np.full((n, 2), n, np.float32) for n, name in enumerate(("a1", "a2", "b1", "other"), start=1)}
    cohort = load_cohort(path, "label", bags=bags)
    assert (cohort.ids, cohort.y.tolist()) == (("a", "b"), ["x", "y"])  # c has no features
    assert [len(bag.open()) for bag in cohort.bags] == [3, 3]
    assert (cohort.patients.tolist(), cohort.sites.tolist()) == (["a", "b"], ["L", "M"])
    survival = load_cohort(str(path), **TIMES, columns=Columns(site="label"))
    np.testing.assert_array_equal(survival.y, [[5, 1], [6, 0], [9, 1]])
    assert survival.sites.tolist() == ["x", "y", "y"]
    with pytest.raises(InputError, match="'x'"):
        load_cohort(path, "label", bags={"x": bags["a1"]})


@pytest.mark.parametrize(
    ("file", "outcome", "level", "expected"),
    [
        ("classification/NSCLC/train.csv", {}, "patient", (756, 848, {"LUAD": 374, "LUSC": 382})),
        ("classification/panda/val.csv", {}, "patient", (954, 954, None)),
        ("classification/ebrains/test.csv", {}, "slide", (573, 573, None)),
        ("survival/TCGA_KIRC_overall_survival_k=0/test_cptac.csv", {"survival": "dss"}, "patient", (179, 339, None)),
    ],
)
def test_real_tables_are_read_by_their_habits(shared_data, file, outcome, level, expected):
    report = load_cohort(shared_data / "tables" / file, **outcome, level=level).report
    assert (report.samples, report.slides) == expected[:2]
    assert expected[2] is None or report.counts == expected[2]
