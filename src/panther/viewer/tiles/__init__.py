"""Tiles: the slide's image and, drawn from the patch grid, whatever lies over it."""
