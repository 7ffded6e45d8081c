"""Tables on disk that are one of several: the parts of a split."""
