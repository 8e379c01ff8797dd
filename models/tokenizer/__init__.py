"""Tokenizers of GGUF files, tokenizer.json, SentencePiece models and vocab.json with merges.txt.

Start reading at `tokenizer.py` for GGUF files and at `pipeline.py` for tokenizer.json; `files.py` opens either.
"""

from gml.models.tokenizer.stream import StreamDecoder
from gml.models.tokenizer.tokenizer import Tokenizer
from gml.models.tokenizer.vocabulary import TokenType

__all__ = ["StreamDecoder", "TokenType", "Tokenizer"]
