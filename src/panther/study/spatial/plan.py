"""Jobs of a study on shuffled tissue, of the rows that read where patches lie."""

from collections.abc import Sequence
from dataclasses import replace

from panther.aggregators import aggregators
from panther.mil import networks
from panther.models.blocks import made_by
from panther.models.settings import Named
from panther.store import hash_of
from panther.study.plan import Plan
from panther.study.rows import is_of_patches, parts_of
from panther.study.spatial.shuffled import Shuffled


def reads_places(row: Named, rows: Sequence[Named]) -> bool:
    """Whether anything that stands in a row of a study depends on coordinates, or on the order of patches.

    Others promise by their contract, which tests hold them to, that they do not: shuffling leaves their numbers exactly as they are.
    """
    return any(_reads_places(part) for part in parts_of(row, rows) if is_of_patches(part))


def _reads_places(part: Named) -> bool:
    if part.name in networks:
        return not networks.entry(part.name).metadata.permutation_invariant
    method = made_by(part)
    about = aggregators.entry(method.name).metadata
    return about.reads_places(method.options) or about.permutation_invariant is not True


def shuffled_plan(plan: Plan, repeat: int) -> Plan:
    """The same plan on shuffled bags; prototypes are those of the tissue as it is, because K-means does not know where patches lie."""
    bags = {
        encoder: {name: Shuffled(ref, repeat) for name, ref in own.items()}
        for encoder, own in plan.population.bags.items()
    }
    features = {
        encoder: {name: one._replace(content=hash_of(["shuffled", repeat, one.content])) for name, one in known.items()}
        for encoder, known in plan.features.items()
    }
    population = replace(plan.population, bags=bags)
    return replace(plan, population=population, features=features, original=plan, note=f", shuffled {repeat}")
