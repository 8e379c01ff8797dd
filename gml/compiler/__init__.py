"""The compiler: `pipeline.py` is its table of contents."""

from gml.compiler.state import Options

__all__ = ["Options"]
