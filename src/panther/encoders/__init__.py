"""Encoders: from patches of a slide to a bag of features."""

from panther.encoders import zoo  # noqa: F401 (registers)
from panther.encoders._base import Encoder, EncoderInfo, about, encoders
from panther.encoders.loading import load_encoder

__all__ = ["Encoder", "EncoderInfo", "about", "encoders", "load_encoder"]
