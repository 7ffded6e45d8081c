"""What features a method takes that stands on no prototypes."""

from dataclasses import dataclass, field

from panther.encoder_names import encoder_words, same_encoder
from panther.errors import InputError
from panther.store import hash_of
from panther.types import Bag, PatchSpec, Prototypes, check_resolution


@dataclass(frozen=True)
class FeatureSpace:
    """Width, encoder and resolution of features (or the width of given vectors): it stands where others have prototypes."""

    dim: int
    encoder: str | None = None
    spec: PatchSpec = field(default_factory=PatchSpec)  # resolution and size of the patches

    @property
    def dim_in(self) -> int:
        """Dimension of the features that are expected."""
        return self.dim

    def content_hash(self) -> str:
        """Hash of what an embedding depends on."""
        return hash_of(["features", self.dim])

    def check(self, bag: Bag) -> None:
        """Refuse a bag of another encoder, dimension or resolution."""
        if bag.dim != self.dim or not same_encoder(bag.encoder, self.encoder):
            raise InputError(
                f"{bag.source}: has {bag.dim} features of {encoder_words(bag.encoder)}, "
                f"but {self.dim} of {encoder_words(self.encoder)} are expected, as the "
                "other slides have; encode the slides with the same encoder."
            )
        check_resolution(bag, self.spec, "the others are")

    def prepared(self, bag: Bag) -> Bag:
        """Bag checked; its features are taken as they are."""
        self.check(bag)
        return bag


def space_of(bag: Bag) -> FeatureSpace:
    """What the features of one bag are; the others of its cohort are expected to be the same."""
    return FeatureSpace(bag.dim, bag.encoder, bag.spec)


Basis = Prototypes | FeatureSpace  # what an embedding stands on
