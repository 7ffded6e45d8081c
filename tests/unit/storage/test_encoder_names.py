"""One encoder has many names; another encoder never gets one of them."""

from collections import Counter

import pytest

from panther.encoders import about, encoders
from panther.patches import ALIASES, canonical, same_encoder


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("uni_v1", "uni"),
        ("UNI", "uni"),
        ("MahmoodLab/UNI", "uni"),
        ("hf-hub:MahmoodLab/uni", "uni"),
        ("hf_hub:MahmoodLab/conch", "conch"),
        ("mahmood-uni", "uni"),
        ("mahmood-conch-02627079", "conch"),
        ("mahmood-conch1_5", "conch-v1.5"),
        ("conch_v15", "conch-v1.5"),
        ("uni_v2", "uni2"),
        ("hoptimus0", "h-optimus-0"),
        ("h_optimus_0", "h-optimus-0"),
        ("resnet50_trunc", "resnet50"),
        ("phikon_v2", "phikon-v2"),
        ("virchow-full", "virchow"),
        ("timm:resnet50.tv_in1k", "resnet50"),
        ("timm/vit_small_patch14_reg4_dinov2.lvd142m", "dinov2-small-reg"),
        ("my_own", "my-own"),
    ],
)
def test_names_of_other_tools_are_known(name, ours):
    assert canonical(name) == ours


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("uni_v1", "uni_v2"),
        ("conch_v1", "conch_v15"),
        ("ctranspath", "chief-ctranspath"),
        ("phikon", "phikon_v2"),
        ("virchow", "virchow2"),
        ("hoptimus0", "hoptimus1"),
        ("dinov2-small", "dinov2-small-reg"),
        ("mine", "yours"),
    ],
)
def test_other_encoders_stay_others(one, other):
    assert not same_encoder(one, other)


def test_a_file_that_names_no_encoder_may_be_of_any():
    assert same_encoder(None, "uni")
    assert same_encoder("uni", "")


def test_no_alias_means_two_encoders():
    count = Counter(alias for name, aliases in ALIASES.items() for alias in (name, *aliases))
    assert [alias for alias, n in count.items() if n > 1] == []
    assert all(alias == alias.casefold().replace("_", "-") for alias in count)


@pytest.mark.parametrize("name", encoders.names())
def test_our_encoders_keep_their_names_and_know_their_place_on_the_hub(name):
    assert canonical(name) == name
    if hub := about(name).hub:
        assert canonical(hub) == name
