"""Two sets of patches are alike where they show as much tissue; what a file does not say cannot disagree."""

import pytest

from panther.patches import PatchSpec, in_common


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
    assert one.agrees(other) is alike
    assert other.agrees(one) is alike


def test_what_is_put_together_keeps_the_scale_that_it_shares():
    assert in_common([PatchSpec(), PatchSpec(0.5), PatchSpec(0.499, 256, size_level0=512)]) == PatchSpec(0.499, 256)
    assert in_common([PatchSpec(0.5, 256), PatchSpec(1.0, 256)]) == PatchSpec()
    assert in_common([]) == PatchSpec()
