"""Every refusal of gml is one of these exceptions; nothing aborts the process.

First module of the core: it imports nothing. A message says what was expected, what was found, where, and what to do;
the command line prints it as one line. Next: `gml/debug.py`, `gml/dtypes.py`.
"""


class Error(Exception):
    """Base of all errors that gml raises on purpose."""


class ShapeError(Error):
    """Sizes, strides or types of tensors do not fit the op they were given to."""


class ArenaError(Error):
    """An arena with a hard limit has no room for what was asked of it."""


class GraphError(Error):
    """A graph cannot be built or run as asked (unknown tensor, missing input, size out of bounds)."""


class FormatError(Error):
    """A file or a block of bytes does not follow its format."""


class UnsupportedError(Error):
    """Well-formed input that asks for something gml does not know, named in the message."""


class TokenizerError(Error):
    """A vocabulary or text that the tokenizer refuses."""


class ContextFullError(Error):
    """A session's context holds no more tokens."""


class UsageError(Error):
    """A wrong option or argument (the command line's exit status 2)."""


class DownloadError(Error):
    """A model could not be fetched."""
