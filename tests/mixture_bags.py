"""Generated bags with known truth."""

import torch


def mixture_bag(
    n: int = 300, d: int = 12, c: int = 4, *, separation: float = 3.0, offset: float = 0.0, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (n, d) drawn around c centres, and the centres; float32, standard deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(c, d, generator=generator) * separation + offset
    labels = torch.randint(c, (n,), generator=generator)
    return centres[labels] + torch.randn(n, d, generator=generator), centres
