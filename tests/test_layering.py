"""The direction of imports holds, and the check sees what breaks it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent / "layering.py"


@pytest.fixture(scope="module")
def layering() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layering", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_import_goes_the_right_way(layering: ModuleType) -> None:
    assert layering.violations() == []
    names = [name for name, _ in layering.modules()]
    assert {"gml", "gml.tensor", "gml.ops.base", "gml.models.session", "gml.backends.reference.program"} <= set(names)


BROKEN = [
    ("gml/tensor.py", "from gml.graph import Graph", "tensor may not import graph"),
    ("gml/errors.py", "import gml.dtypes", "errors may not import dtypes"),
    ("gml/ops/x.py", "def f():\n    from gml.compiler.state import State", "ops may not import compiler"),
    ("gml/graph.py", "import llvmlite", "core imports only numpy"),
    ("gml/graph.py", "import gml", "the core imports its own modules"),
    ("gml/graph.py", "from gml.models import session", "graph may not import models"),
    ("gml/graph.py", "from .tensor import Tensor", "relative"),
    ("gml/new.py", "import numpy", "in no layer"),
    ("gml/__init__.py", "from gml import models", "gml itself may not import models"),
    ("models/a.py", "from gml.tensor import Tensor", "public API"),
    ("models/a.py", "from gml import tensor", "public API"),
    ("models/a.py", "import gml.compiler", "public API"),
    ("models/a.py", "from gml.backends import reference", "models may not import backends"),
    ("models/a.py", "import click", "models imports only"),
    ("backends/a.py", "from gml.models import loader", "backends may not import models"),
    ("tools/a.py", "from gml.backends.reference import ReferenceBackend", "by its name"),
]
FINE = [
    ("gml/tensor.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gml.ops.base import OpDef"),
    ("gml/ops/x.py", "from gml.ops.base import OpDef\nimport numpy as np\nimport math"),
    (
        "models/a.py",
        "import gml\nfrom gml import Tensor\nfrom gml.errors import Error\nfrom gml.quants import base\nimport regex",
    ),
    ("backends/a.py", "from gml.compiler.state import State\nfrom gml.kernel_ir import Builder\nimport llvmlite"),
    ("tools/a.py", "from gml.models.session import Session\nimport click"),
]


def written(folder: Path, path: str, source: str) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return folder


@pytest.mark.parametrize("path, source, expected", BROKEN)
def test_an_import_against_the_direction_is_found(
    layering: ModuleType, tmp_path: Path, path: str, source: str, expected: str
) -> None:
    (found,) = layering.violations(written(tmp_path, path, source))
    assert expected in found
    assert Path(path).name in found


@pytest.mark.parametrize("path, source", FINE)
def test_imports_along_the_direction_are_fine(layering: ModuleType, tmp_path: Path, path: str, source: str) -> None:
    assert layering.violations(written(tmp_path, path, source)) == []


def test_the_script_says_so_in_its_exit_status() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "right way" in done.stdout
