"""GGUF files: `reader.py`, `split.py`, `writer.py`."""

from gml.models.gguf.reader import GGUFFile, GGUFTensor, Strings

__all__ = ["GGUFFile", "GGUFTensor", "Strings"]
