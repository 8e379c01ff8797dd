"""GGUF files: `GGUFFile.open` reads one (any shard of a split one), `write_gguf` writes one.

Reading order: `keys.py`, `strings.py`, `header.py`, `split.py`, `reader.py`, `writer.py`.
"""

from gml.models.gguf.keys import MetadataType, ValueType
from gml.models.gguf.reader import GGUFFile, GGUFTensor
from gml.models.gguf.split import shard_name
from gml.models.gguf.strings import StringArray
from gml.models.gguf.writer import TensorSource, write_gguf

__all__ = [
    "GGUFFile",
    "GGUFTensor",
    "MetadataType",
    "StringArray",
    "TensorSource",
    "ValueType",
    "shard_name",
    "write_gguf",
]
