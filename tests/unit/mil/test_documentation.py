"""What docs/concepts/mil.md says about the networks is measured here."""

from pathlib import Path

import pytest
import torch

from panther.mil import build, count_parameters, networks
from panther.types import Prototypes

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "mil.md"


@pytest.mark.parametrize("name", networks.names())
def test_the_table_of_parameters_is_true(name):
    network = build(name, 1024, 4, Prototypes(torch.randn(16, 1024)))
    row = f"| `{name}` | {network.out_dim:,} | {count_parameters(network):,} |"
    assert row in PAGE.read_text(), f"docs/concepts/mil.md should say: {row}"
