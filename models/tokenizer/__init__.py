"""Tokenizers from GGUF metadata. Start reading at `tokenizer.py`."""

from gml.models.tokenizer.stream import StreamDecoder
from gml.models.tokenizer.tokenizer import Tokenizer
from gml.models.tokenizer.vocabulary import TokenType

__all__ = ["StreamDecoder", "TokenType", "Tokenizer"]
