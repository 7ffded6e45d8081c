"""panther-wsi: morphological prototypes for whole-slide images (PANTHER, CVPR 2024)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from panther.version import __version__

if TYPE_CHECKING:
    from panther.embedding_models import EmbeddingClassifier, EmbeddingCox, EmbeddingScaler
    from panther.errors import InputError
    from panther.estimator import Panther, embed
    from panther.storage.bags import list_bags
    from panther.storage.prototypes import load_prototypes, save_prototypes
    from panther.storage.readers import open_bag
    from panther.types import Bag, Mixture, PatchSpec, Prototypes, SlideEmbedding

# Imported when first used: `import panther` and `panther --help` stay fast.
_HOMES = {
    "Bag": "panther.types",
    "EmbeddingClassifier": "panther.embedding_models",
    "EmbeddingCox": "panther.embedding_models",
    "EmbeddingScaler": "panther.embedding_models",
    "InputError": "panther.errors",
    "Mixture": "panther.types",
    "Panther": "panther.estimator",
    "PatchSpec": "panther.types",
    "Prototypes": "panther.types",
    "SlideEmbedding": "panther.types",
    "embed": "panther.estimator",
    "list_bags": "panther.storage.bags",
    "load_prototypes": "panther.storage.prototypes",
    "open_bag": "panther.storage.readers",
    "save_prototypes": "panther.storage.prototypes",
}
__all__ = [
    "Bag",
    "EmbeddingClassifier",
    "EmbeddingCox",
    "EmbeddingScaler",
    "InputError",
    "Mixture",
    "Panther",
    "PatchSpec",
    "Prototypes",
    "SlideEmbedding",
    "__version__",
    "embed",
    "list_bags",
    "load_prototypes",
    "open_bag",
    "save_prototypes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'panther' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
