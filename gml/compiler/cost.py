"""What regions cost: bytes that they move through memory and multiplications, at given run-time sizes.

Arrives: a region and the values of its dims; leaves: a `Cost`. Bytes are what a kernel has to touch at least once:
a look-up of rows reads the rows it takes, everything else reads its inputs whole. Next module: `program.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from gml.compiler.regions import Region
from gml.dims import Dim, value_of
from gml.records import dataclass
from gml.tensor import Tensor, product


@dataclass(frozen=True)
class Cost:
    """Bytes read and written, and multiply-adds."""

    n_bytes: int = 0
    n_macs: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.n_bytes + other.n_bytes, self.n_macs + other.n_macs)


def region_cost(region: Region, values: Mapping[Dim, int]) -> Cost:
    """The cost of one run of a region."""
    written = _moved_bytes(region, values)
    read = 0
    for source in region.inputs:
        takers = [n for n in region.nodes if source in n.src]
        if all(n.op is not None and (n.op.moves or n.op.writes is not None) for n in takers):
            # rows that are looked up or put somewhere: as many as come out
            read += min(_bytes(source, values), written)
        else:
            read += _bytes(source, values)
    n_macs = 0
    for node in region.nodes:
        if node.op is not None and node.op.macs is not None:
            n_macs += value_of(node.op.macs(node.attrs, node, *node.src), values)
    return Cost(read + written, n_macs)


def _moved_bytes(region: Region, values: Mapping[Dim, int]) -> int:
    """Bytes that are stored: those of the result, or of what a write puts into its destination."""
    out = region.out
    if out.op is not None and out.op.writes is not None:
        put = next((s for i, s in enumerate(out.src) if i != out.op.writes), out)
        elements = value_of(put.n_elements, values)
        return elements * out.type.type_size // out.type.block_size
    return _bytes(out, values)


def _bytes(tensor: Tensor, values: Mapping[Dim, int]) -> int:
    """Bytes of the elements, however they lie."""
    blocks = value_of(product(tensor.ne), values) // tensor.type.block_size
    return blocks * tensor.type.type_size
