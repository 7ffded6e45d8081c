"""Study templates: the paper's ten trainings over thirteen data sets, and its three ablations. A user fills in paths."""

from dataclasses import dataclass
from pathlib import Path

from panther.errors import InputError, suggestion
from panther.storage.files import write_text

_HEAD = """\
# {title}
# {note}
# Fill in the paths (they count from this file), then: panther run {name}.yaml -o {name}/
name: {name}
"""

_SUPERVISED = "  - abmil\n  - transmil\n  - dsmil\n  - attnmisl\n  - ilra\n"
_METHODS = f"""\
methods:
{_SUPERVISED}  - deepsets
  - protocounts
  - h2t
  - ot
  - {{name: panther, readout: top, label: PANTHER Top}}
  - {{name: panther, readout: bottom, label: PANTHER Bottom}}
  - {{name: panther, readout: wa, label: PANTHER WA}}
  - {{name: panther, label: PANTHER All}}
reference: PANTHER All
n_prototypes: [16]
"""


@dataclass(frozen=True)
class Template:
    """A study to start from."""

    title: str
    note: str
    body: str

    def text(self, name: str) -> str:
        """The file."""
        return _HEAD.format(title=self.title, note=self.note, name=name) + self.body


def _classification(label: str, table: str, shares: str, extra: str = "") -> str:
    return f"""\
table: {table}
features:
  uni: features/uni
task: {{label: {label}}}
splits: {{scheme: holdout, shares: {shares}, seed: 1}}   # or a folder of split tables
{extra}{_METHODS}heads: [linear, paper-classification]
losses: [cross-entropy]
seeds: [1, 2, 3, 4, 5]
"""


def _survival(cohort: str, external: tuple[str, ...] = ()) -> str:
    others = "".join(
        f"  {name}:\n    table: tables/{name}_{cohort}.csv\n    features: {{uni: features/{name}_{cohort}_uni}}\n"
        for name in external
    )
    outside = f"external:\n{others}" if external else ""
    return f"""\
table: tables/tcga_{cohort}.csv
features:
  uni: features/tcga_{cohort}_uni
task: {{survival: dss}}
splits: {{scheme: site-kfold, k: 5, seed: 1}}   # or a folder of split tables, {{name}}_k=0 ... {{name}}_k=4
{outside}{_METHODS}heads: [linear, paper-survival]
losses: [cox]
mil_loss: nll   # of the supervised networks
"""


_ABLATED = "the paper did so on EBRAINS, PANDA, CRC and LUAD, here it is CRC"
_SITE = "Site-stratified 5-fold cross-validation on disease-specific survival, c-index"
TEMPLATES: dict[str, Template] = {
    "ebrains-fine": Template(
        "EBRAINS, fine subtyping (30 classes)",
        "Balanced accuracy and weighted F1; 50:25:25. The coarse study must use the same split: write it once with `panther splits`.",
        _classification(
            "diagnosis, level: slide", "tables/ebrains.csv", "[0.5, 0.25, 0.25]"
        ),  # some patients have two diagnoses
    ),
    "ebrains-coarse": Template(
        "EBRAINS, coarse subtyping (12 classes)",
        "The same fold as ebrains-fine: give the folder that `panther splits tables/ebrains.csv --label diagnosis` wrote as `splits`.",
        _classification("diagnosis_group, level: slide", "tables/ebrains.csv", "[0.5, 0.25, 0.25]"),
    ),
    "nsclc": Template(
        "NSCLC subtyping (LUAD, LUSC) on TCGA, tested on CPTAC",
        "Balanced accuracy and weighted F1; 80:10:10.",
        _classification(
            "OncoTreeCode",
            "tables/tcga_nsclc.csv",
            "[0.8, 0.1, 0.1]",
            "external:\n  cptac:\n    table: tables/cptac_nsclc.csv\n    features: {uni: features/cptac_nsclc_uni}\n",
        ).replace("{label: OncoTreeCode}", "{label: OncoTreeCode, classes: [LUAD, LUSC]}"),
    ),
    "panda": Template(
        "PANDA ISUP grading (6 grades)",
        "Quadratic weighted kappa, by provider (Karolinska, Radboud); 80:10:10.",
        _classification(
            "isup_grade",
            "tables/panda.csv",
            "[0.8, 0.1, 0.1]",
            "evaluate_by: data_provider\nmetrics: [quadratic_kappa]\n",
        ),
    ),
    **{
        cohort: Template(f"TCGA-{cohort.upper()} survival", f"{_SITE}.", _survival(cohort))
        for cohort in ("brca", "crc", "blca", "ucec")
    },
    "kirc": Template("TCGA-KIRC survival, tested on CPTAC", f"{_SITE}.", _survival("kirc", ("cptac",))),
    "luad": Template("TCGA-LUAD survival, tested on CPTAC and NLST", f"{_SITE}.", _survival("luad", ("cptac", "nlst"))),
    "ablation-encoder": Template(
        "Ablation: patch encoders",
        f"UNI, CTransPath and ResNet50 for every method; {_ABLATED}.",
        _survival("crc").replace(
            "  uni: features/tcga_crc_uni\n",
            "  uni: features/tcga_crc_uni\n  ctranspath: features/tcga_crc_ctranspath\n  resnet50: features/tcga_crc_resnet50\n",
        ),
    ),
    "ablation-prototypes": Template(
        "Ablation: number of prototypes",
        f"C = 8, 16, 32; {_ABLATED}.",
        _survival("crc").replace("n_prototypes: [16]", "n_prototypes: [8, 16, 32]"),
    ),
    "ablation-loss": Template(
        "Ablation: survival losses",
        "Cox, discrete NLL and ranking on unsupervised embeddings, batch 64 for all; the paper did so on CRC and LUAD, here it is CRC.",
        _survival("crc")
        .replace("losses: [cox]", "losses: [cox, {name: nll, n_bins: 4, alpha: 0.5}, ranking]")
        .replace("mil_loss: nll   # of the supervised networks\n", "")
        .replace(_SUPERVISED, ""),
    ),
}


def find_template(name: str) -> Template:
    """Template of that name, or a sentence that lists the known ones."""
    if name not in TEMPLATES:
        raise InputError(f"There is no study template {name!r}; {suggestion(name, TEMPLATES)}.")
    return TEMPLATES[name]


def write_study(text: str, path: Path) -> None:
    """Write a study to start from; an existing file is not overwritten."""
    if path.exists():
        raise InputError(f"{path}: is there already; give another name.")
    write_text(path, text)


def write_template(name: str, path: Path) -> None:
    """Write the template of that name."""
    write_study(find_template(name).text(path.stem), path)
