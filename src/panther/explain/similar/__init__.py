"""Slides that are alike, and why."""
