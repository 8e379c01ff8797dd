"""The reference backend: each op's numpy meaning, one after the other. Slow, obvious, the oracle."""

from gml.backends.reference.program import ReferenceBackend, ReferenceProgram

__all__ = ["ReferenceBackend", "ReferenceProgram"]
