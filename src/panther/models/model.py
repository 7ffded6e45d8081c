"""A trained model as a value: prototypes, scaling, head or network, settings, and what it was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from panther.cohort.load import CohortReport
from panther.encoder_names import encoder_words, same_encoder
from panther.errors import InputError, listed
from panther.feature_space import FeatureSpace
from panther.models.blocks import Block
from panther.models.blocks.joint_scaling import AnyScaler
from panther.models.named import Named
from panther.models.sureness.value import Sureness
from panther.models.tasks import Task
from panther.types import Openable, PatchSpec, Prototypes, check_resolution


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained model."""

    method: Named
    head: Named
    task: Task[Any]
    network: nn.Module  # the head on scaled embeddings, or a supervised network on bags
    dim: int  # features per patch
    encoder: str | None
    prototypes: Prototypes | None
    scaler: AnyScaler | None
    about: Mapping[str, Any]  # who was trained on, settings, fingerprint, version
    baseline: Tensor | None = None  # (D,), mean training embedding, the origin of attributions; None for networks
    spec: PatchSpec = field(default_factory=PatchSpec)  # resolution and size of the training patches
    sure: Sureness = field(default_factory=Sureness)  # how sure it may be, and what it has seen
    blocks: tuple[Block, ...] = ()  # of a concatenation: what stands side by side
    # of the training, not in the file: whom the table names, and who was left out and why
    report: CohortReport | None = None
    failures: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        made = (
            self.method.title if self.prototypes is None else f"{self.method.title} ({len(self.prototypes)} prototypes)"
        )
        outputs = f" of {listed(self.task.output_names, 5)}" if len(self.task.output_names) > 1 else ""
        trained = f"trained on {len(self.about.get('samples', ()))} samples"
        return f"<Model {made}, {self.head.title}: {self.task.kind}{outputs}; {trained}>"

    def to_lines(self) -> list[str]:
        """What it was trained on, for people."""
        count = len(self.about.get("samples", ()))
        name = self.method.title if self.head.name == "own" else f"{self.method.title} + {self.head.title}"
        promise = self.sure.promise
        return [
            *(self.report.sentences() if self.report else ()),
            *([promise.sentence()] if promise else ()),
            f"{name} trained on {count} samples",
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "samples": len(self.about.get("samples", ())),
            "method": self.method.name,
            "head": self.head.name,
            "report": self.report.to_dict() if self.report else None,
            "calibration": self.sure.settings()["promise"],
        }

    def representation(self) -> tuple[Block, ...]:
        """What the numbers are that the head reads; nothing where a network reads bags."""
        if self.scaler is None or self.blocks:
            return self.blocks
        return (Block(self.method, self.prototypes or FeatureSpace(self.dim, self.encoder, self.spec)),)


def embedding_model(
    method: Named,
    head: Named,
    task: Task[Any],
    network: nn.Module,
    blocks: tuple[Block, ...],
    scaler: AnyScaler,
    about: Mapping[str, Any],
    baseline: Tensor | None,
) -> Model:
    """Model of a head on embeddings: what a single block stands on is what the model stands on."""
    if len(blocks) > 1:
        width = sum(block.basis.dim_in for block in blocks)
        encoder = next((block.basis.encoder for block in blocks if block.basis.encoder), None)
        return Model(method, head, task, network, width, encoder, None, scaler, about, baseline, blocks=blocks)
    (block,) = blocks
    basis, method = block.basis, block.method
    prototypes = basis if isinstance(basis, Prototypes) else None
    return Model(
        method, head, task, network, basis.dim_in, basis.encoder, prototypes, scaler, about, baseline, basis.spec
    )


def check_bag(model: Model, ref: Openable) -> None:
    """Refuse features that the model was not trained on."""
    bag = ref.open()
    if bag.dim != model.dim or not same_encoder(bag.encoder, model.encoder):
        raise InputError(
            f"{bag.source}: has {bag.dim} features of {encoder_words(bag.encoder)}, "
            f"but the model was trained on {model.dim} of {encoder_words(model.encoder)}; "
            "encode the slides with the same encoder."
        )
    check_resolution(bag, model.spec, "the model was trained on")
