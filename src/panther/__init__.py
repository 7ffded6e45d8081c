"""panther-wsi: morphological prototypes for whole-slide images (PANTHER, CVPR 2024).

Everything that a notebook needs is a name of this module. Features are given as a folder, a file, or a list of bags, arrays or paths; tables as
a path or a DataFrame; prototypes and models as a path or a value. Input that cannot be used raises `InputError`.

Slides and features
    `open_slide` opens a whole-slide image, `extract` finds its tissue and encodes its patches; `open_bag` and `list_bags` read the features of one
    slide (`Bag`, with patches of a `PatchSpec`) or of a folder, `save_bag` writes them; `inspect` describes files, `convert` changes their layout,
    `to_wsidata` writes results into stores of wsidata.

Prototypes and embeddings
    `fit_prototypes` finds `Prototypes` in training bags, `choose_c` recommends their number, `compare_prototypes` matches two sets;
    `save_prototypes` and `load_prototypes` keep them, `share_prototypes` writes a folder for the hub. `shift` measures how well sites can be
    read off embeddings.
    `embed` turns one bag into a `SlideEmbedding` (of its `Mixture`), `embed_cohort` many into a table, `build` gives the method as a torch module
    that can be trained, `Panther` is all of it as a scikit-learn transformer.

Prediction
    `load_cohort` reads the clinical table (`Cohort`; `Columns` names its columns where they are not the usual ones), `make_splits` and
    `SiteKFold` make honest folds (`Split`). `EmbeddingScaler`, `EmbeddingClassifier`, `EmbeddingRegressor` and `EmbeddingCox` follow `Panther`
    in a pipeline. `train` and `predict` make and use one model, which `save_model` and `load_model` keep; `run_study` compares many.

Looking
    `make_map` shows where prototypes lie, `make_atlas` what they look like and who has them, `concordance` whether they agree with tissue classes,
    `attribute` what drives a prediction, `kaplan_meier` who lives longer; `make_report` is a study as one page.
    `similar` finds the slides that are like one slide, with reasons, and `retrieval` judges whether such slides share a label.
    `view` shows all of it in the browser, slides included.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from panther.version import __version__

if TYPE_CHECKING:
    from panther.aggregators import build
    from panther.aggregators.embed import embed
    from panther.cohort.load import Cohort, load_cohort
    from panther.cohort.splits import Split
    from panther.errors import InputError
    from panther.estimators import EmbeddingClassifier, EmbeddingCox, EmbeddingRegressor, EmbeddingScaler, Panther
    from panther.estimators.site_kfold import SiteKFold
    from panther.models.model import load_model, save_model
    from panther.slides.slide import open_slide
    from panther.storage.bags import list_bags
    from panther.storage.clinical import Columns
    from panther.storage.prototypes import load_prototypes, save_prototypes
    from panther.storage.readers import open_bag
    from panther.storage.writers import save_bag
    from panther.types import Bag, Mixture, PatchSpec, Prototypes, SlideEmbedding
    from panther.verbs.atlas import make_atlas
    from panther.verbs.attribute import attribute, kaplan_meier
    from panther.verbs.cohort import make_splits
    from panther.verbs.concordance import concordance
    from panther.verbs.data import convert, inspect
    from panther.verbs.embed import embed_cohort
    from panther.verbs.map import make_map
    from panther.verbs.model import predict, train
    from panther.verbs.prototypes import choose_c, compare_prototypes, fit_prototypes, shift
    from panther.verbs.search import retrieval, similar
    from panther.verbs.share import share_prototypes
    from panther.verbs.slides import extract
    from panther.verbs.study import make_report, run_study
    from panther.verbs.view import view
    from panther.verbs.wsidata import to_wsidata

# Imported when first used: `import panther` and `panther --help` stay fast.
_NAMES = {
    "panther.aggregators": "build",
    "panther.aggregators.embed": "embed",
    "panther.cohort.load": "Cohort load_cohort",
    "panther.cohort.splits": "Split",
    "panther.errors": "InputError",
    "panther.estimators": "EmbeddingClassifier EmbeddingCox EmbeddingRegressor EmbeddingScaler Panther",
    "panther.estimators.site_kfold": "SiteKFold",
    "panther.models.model": "load_model save_model",
    "panther.slides.slide": "open_slide",
    "panther.storage.bags": "list_bags",
    "panther.storage.clinical": "Columns",
    "panther.storage.prototypes": "load_prototypes save_prototypes",
    "panther.storage.readers": "open_bag",
    "panther.storage.writers": "save_bag",
    "panther.types": "Bag Mixture PatchSpec Prototypes SlideEmbedding",
    "panther.verbs.atlas": "make_atlas",
    "panther.verbs.attribute": "attribute kaplan_meier",
    "panther.verbs.cohort": "make_splits",
    "panther.verbs.concordance": "concordance",
    "panther.verbs.data": "convert inspect",
    "panther.verbs.embed": "embed_cohort",
    "panther.verbs.map": "make_map",
    "panther.verbs.model": "predict train",
    "panther.verbs.prototypes": "choose_c compare_prototypes fit_prototypes shift",
    "panther.verbs.search": "retrieval similar",
    "panther.verbs.share": "share_prototypes",
    "panther.verbs.slides": "extract",
    "panther.verbs.study": "make_report run_study",
    "panther.verbs.view": "view",
    "panther.verbs.wsidata": "to_wsidata",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [
    "Bag",
    "Cohort",
    "Columns",
    "EmbeddingClassifier",
    "EmbeddingCox",
    "EmbeddingRegressor",
    "EmbeddingScaler",
    "InputError",
    "Mixture",
    "Panther",
    "PatchSpec",
    "Prototypes",
    "SiteKFold",
    "SlideEmbedding",
    "Split",
    "__version__",
    "attribute",
    "build",
    "choose_c",
    "compare_prototypes",
    "concordance",
    "convert",
    "embed",
    "embed_cohort",
    "extract",
    "fit_prototypes",
    "inspect",
    "kaplan_meier",
    "list_bags",
    "load_cohort",
    "load_model",
    "load_prototypes",
    "make_atlas",
    "make_map",
    "make_report",
    "make_splits",
    "open_bag",
    "open_slide",
    "predict",
    "retrieval",
    "run_study",
    "save_bag",
    "save_model",
    "save_prototypes",
    "share_prototypes",
    "shift",
    "similar",
    "to_wsidata",
    "train",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'panther' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)  # from now on without this function
    return value


def __dir__() -> list[str]:
    return __all__
