"""The direction of imports, checked on the source; `python tests/layering.py`, or by `test_layering.py`.

A module may import modules of its own layer and of those before it. The core imports numpy only; models know gml by its
public API alone. Imports inside functions count too; those under `if TYPE_CHECKING` do not, since they never happen.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: layers of the core in order; a name is a module or a package of gml
ORDER = (
    ("errors", "records"), ("debug", "plugins"), ("dtypes",), ("kernel_ir",), ("quants",), ("dims",), ("arena",),
    ("tensor",), ("context",), ("ops",), ("graph",), ("backend",), ("compiler",), ("inspect",), ("testing",), ("api",),
    ("backends", "models"), ("tools",),
)  # fmt: skip
LAYER = {name: i for i, names in enumerate(ORDER) for name in names}
CORE = [name for names in ORDER[:-2] for name in names]

#: packages outside the standard library that a part may import
OUTSIDE = {
    "core": {"numpy"},
    "backends": {"numpy", "llvmlite"},
    "models": {"numpy", "regex", "jinja2"},
    "tools": {"numpy", "click", "rich"},
}

#: what models and tools may know of the core: the public API and these modules
PUBLIC = {"errors", "records", "quants", "debug", "plugins"}

#: where each part's source lies
FOLDERS = {"backends": "backends", "models": "models", "tools": "tools"}


def modules(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """(dotted import name, file) of every module of the package."""
    for folder, prefix in [("gml", "gml"), *((folder, f"gml.{part}") for part, folder in FOLDERS.items())]:
        for path in sorted((root / folder).rglob("*.py")):
            parts = list(path.relative_to(root / folder).with_suffix("").parts)
            yield ".".join([prefix, *(parts[:-1] if parts[-1] == "__init__" else parts)]), path


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """(line, module, name or "") of every import that can happen."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, "." * node.level + (node.module or ""), alias.name
        pending.extend(ast.iter_child_nodes(node))


def part_of(module: str) -> str:
    """ "errors" of gml.errors, "models" of gml.models.gguf.reader, "" of gml itself."""
    return module.split(".")[1] if "." in module else ""


def complaint(importer: str, module: str, name: str) -> str | None:
    """What is wrong with this import, or None."""
    mine = part_of(importer)
    kind = mine if mine in FOLDERS else "core"
    if module.startswith("."):
        return "relative imports hide their layer; use the full name"
    top = module.split(".")[0]
    if top != "gml":
        fine = top in sys.stdlib_module_names or top in OUTSIDE[kind]
        return None if fine else f"{kind} imports only {', '.join(sorted(OUTSIDE[kind]))} and the standard library"
    theirs = part_of(module) or (name if name in LAYER else "")
    if not mine:
        return f"gml itself may not import {theirs}" if theirs and theirs not in CORE else None
    if not theirs:
        return None if kind != "core" else "the core imports its own modules, not the package that gathers them"
    if theirs not in LAYER:
        return f"{theirs!r} is in no layer; add it to ORDER in tests/layering.py"
    if LAYER[theirs] > LAYER[mine] or (LAYER[theirs] == LAYER[mine] and theirs != mine):
        return f"{mine} may not import {theirs}, which comes after it"
    if kind in ("models", "tools") and theirs in CORE and theirs not in PUBLIC:
        return f"{kind} use gml's public API: write `import gml`, not gml.{theirs}"
    if kind == "tools" and theirs == "backends":
        return "tools take a backend by its name (gml.get_backend)"
    return None


def violations(root: Path = ROOT) -> list[str]:
    """One line per import that goes the wrong way."""
    found = []
    for importer, path in modules(root):
        if part_of(importer) not in LAYER and part_of(importer):
            found.append(f"{path.relative_to(root)}: {part_of(importer)!r} is in no layer; add it to ORDER")
            continue
        for line, module, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            wrong = complaint(importer, module, name)
            if wrong:
                text = f"from {module} import {name}" if name else f"import {module}"
                found.append(f"{path.relative_to(root)}:{line}: {text}: {wrong}")
    return found


def main() -> int:
    """Print what is wrong; exit status 1 when there is something."""
    found = violations()
    print("\n".join(found) if found else "layering: every import goes the right way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
