"""Makes the tables beside these tests importable (`import op_truth`), whatever folder pytest is started in."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
