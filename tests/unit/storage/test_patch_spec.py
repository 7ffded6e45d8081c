"""Encoders and resolutions: one encoder has many names, two sets of patches are alike where they show as much tissue."""

from collections import Counter

import pytest

from panther.encoders import about, encoders
from panther.patches import ALIASES, PatchSpec, canonical, in_common, same_encoder

NAMES = {
    "uni": ("uni_v1", "UNI", "MahmoodLab/UNI", "hf-hub:MahmoodLab/uni", "mahmood-uni"),
    "conch": ("hf_hub:MahmoodLab/conch", "mahmood-conch-02627079"),
    "conch-v1.5": ("mahmood-conch1_5", "conch_v15"),
    "uni2": ("uni_v2",),
    "h-optimus-0": ("hoptimus0", "h_optimus_0"),
    "resnet50": ("resnet50_trunc", "timm:resnet50.tv_in1k"),
    "phikon-v2": ("phikon_v2",),
    "virchow": ("virchow-full",),
    "dinov2-small-reg": ("timm/vit_small_patch14_reg4_dinov2.lvd142m",),
    "my-own": ("my_own",),
}
OTHERS = [
    ("uni_v1", "uni_v2"), ("conch_v1", "conch_v15"), ("ctranspath", "chief-ctranspath"), ("phikon", "phikon_v2"),
    ("virchow", "virchow2"), ("hoptimus0", "hoptimus1"), ("dinov2-small", "dinov2-small-reg"), ("mine", "yours"),
]  # fmt: skip


def test_names_of_other_tools_are_known_and_other_encoders_stay_others():
    assert {canonical(name): ours for ours, names in NAMES.items() for name in names} == {ours: ours for ours in NAMES}
    assert not any(same_encoder(*pair) for pair in OTHERS)
    assert same_encoder(None, "uni")
    assert same_encoder("uni", "")
    for name in encoders.names():
        assert {canonical(known) for known in (name, about(name).hub) if known} == {name}


def test_no_alias_means_two_encoders():
    count = Counter(alias for name, aliases in ALIASES.items() for alias in (name, *aliases))
    assert [alias for alias, n in count.items() if n > 1] == []
    assert all(alias == alias.casefold().replace("_", "-") for alias in count)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (PatchSpec(0.5, 256), PatchSpec(0.499, 256), True),
        (PatchSpec(0.5, 256), PatchSpec(1.0, 256), False),
        (PatchSpec(0.5, 512), PatchSpec(1.0, 256), True),  # 256 um both: the encoder sees the same
        (PatchSpec(0.5, 256), PatchSpec(0.5, 512), False),
        (PatchSpec(0.5, 256), PatchSpec(0.5), True),
        (PatchSpec(0.5), PatchSpec(1.0), False),
        (PatchSpec(), PatchSpec(1.0, 224), True),
        (PatchSpec(size=256), PatchSpec(size=512), True),  # pixels of unknown size say nothing
        (PatchSpec(256 / 224, 224), PatchSpec(1.0, 256), True),  # STAMP's 256 um beside 10x of TRIDENT
    ],
)
def test_patches_agree_if_they_show_as_much_tissue(one, other, alike):
    assert one.agrees(other) is other.agrees(one) is alike


def test_what_is_put_together_keeps_the_scale_that_it_shares():
    assert in_common([PatchSpec(), PatchSpec(0.5), PatchSpec(0.499, 256, size_level0=512)]) == PatchSpec(0.499, 256)
    assert in_common([PatchSpec(0.5, 256), PatchSpec(1.0, 256)]) == in_common([]) == PatchSpec()
