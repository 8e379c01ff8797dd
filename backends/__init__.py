"""Backends: packages that turn a graph into a program. `reference` runs numpy."""
