"""Looking at what the compiler does: every stage as text, artefacts in folders, regions checked while they run.

Arrives: graphs, states between passes, programs; leaves: text, files, errors. Nothing of it is imported unless it is
asked for (`gml.debug.inspector`). Reading order: `text.py` (what stages look like), `stages.py` (`Program.dump`),
`watch.py` (`GML_DEBUG`, `GML_DUMP`), `check.py` and `reproduce.py` (`GML_CHECK`). Next module: `gml/api.py`.
"""

from gml.inspect.stages import STAGES, dump
from gml.inspect.watch import Watch, attach

__all__ = ["STAGES", "Watch", "attach", "dump"]
