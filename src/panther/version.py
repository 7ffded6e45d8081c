"""The version, written into every artefact."""

__version__ = "1.0.0"
