"""Rules that keep the house in order; each fails when someone drifts."""

import ast
import functools
import graphlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.weights import weights

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    "pyproject.toml", "README.md", "LICENSE", "Makefile", "pipeline", "model", "ds_configs",
    "slurm", "tests", "docker",
}  # fmt: skip
SOURCES = sorted(
    path for room in ("pipeline", "model") for path in (ROOT / room).rglob("*.py") if path.exists()
)
MOST_LINES, MOST_FUNCTION_LINES = 800, 80
MOST_COMMAND_LINES = 120
MOST_LEVELS = 3
MOST_PARAMETERS = 12
"""Of a constructor."""
LARGE_ROOM = 1_500
"""Lines of code from which a room has a page."""
SMALL_LINES = 60
SMALL_TABLES = {
    *(f"pipeline/experiments/tables/{paper}.py" for paper in ("electra", "modern", "spanbert")),
    "pipeline/base/command_table.py",
}
"""Tables: of papers, one a file, that ablations read, and of the commands."""
FLOW = (
    "model", "model/objectives", "model/hugging_face", "model/tasks",
    "pipeline", "pipeline/base", "pipeline/kernels", "pipeline/execution",
    "pipeline/config", "pipeline/recipes", "pipeline/remote",
    "pipeline/ingest", "pipeline/ingest/compression", "pipeline/ingest/encodings",
    "pipeline/ingest/wikitext", "pipeline/ingest/documents", "pipeline/ingest/extraction",
    "pipeline/ingest/corpora",
    "pipeline/data", "pipeline/data/text", "pipeline/data/selection", "pipeline/data/tokenizers",
    "pipeline/data/rows", "pipeline/data/shards", "pipeline/data/preparation",
    "pipeline/data/inspection",
    "pipeline/released", "pipeline/loading", "pipeline/planning",
    "pipeline/costs/shapes", "pipeline/costs/preparation", "pipeline/costs", "pipeline/cluster",
    "pipeline/evaluation/scoring", "pipeline/evaluation/zero_shot", "pipeline/evaluation",
    "pipeline/training/optimizer", "pipeline/training/checkpoints", "pipeline/training/weights",
    "pipeline/training/run_directory", "pipeline/training/validation", "pipeline/training",
    "pipeline/downstream/reading", "pipeline/downstream",
    "pipeline/experiments/tables", "pipeline/experiments", "pipeline/reporting",
    "pipeline/diagnosis",
)  # fmt: skip
"""Each folder may import from those before it; commands, the files of pipeline/, from all."""
WITH_TORCH = (
    "model/", "pipeline/loading/", "pipeline/planning/", "pipeline/costs/", "pipeline/cluster/",
    "pipeline/evaluation/", "pipeline/training/", "pipeline/downstream/",
    "pipeline/diagnosis/rates.py",
)  # fmt: skip
"""Preparing needs no torch, so only files of these folders may import it."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports(path: Path) -> set[str]:
    """Dotted names of every module a file imports."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} has a relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def uses(path: Path, package: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for module in imports(path))


def room(path: Path) -> str:
    """The folder of a source; a file of pipeline/ is a room of its own."""
    relative = path.relative_to(ROOT)
    alone = relative.parent == Path("pipeline") and path.stem != "__init__"
    return (relative.with_suffix("") if alone else relative.parent).as_posix()


def is_ours(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def imported_rooms(path: Path) -> set[str]:
    """The other rooms that a file imports from; imports inside functions count."""
    found = set()
    for node in nodes(path):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                modules.append(whole if is_ours(whole) else node.module or "")
        for module in modules:
            if module.partition(".")[0] in ("pipeline", "model") and is_ours(module):
                file = ROOT / module.replace(".", "/")
                found.add(room(file / "__init__.py" if file.is_dir() else file.with_suffix(".py")))
    return found - {room(path)}


def test_imports_go_one_way() -> None:
    """A folder imports from folders before it in FLOW; nothing but a command imports a command."""
    for path in SOURCES:
        me = room(path)
        if path.stem == "__init__" and not imported_rooms(path):
            continue
        if me not in FLOW:
            folder = path.relative_to(ROOT).parent.as_posix()
            assert folder == "pipeline", f"{name(path)}: name the folder {folder} in FLOW"
            continue
        before = FLOW[: FLOW.index(me)]
        for other in imported_rooms(path):
            assert other in before, f"{name(path)} imports from {other}, which is not before {me}"


def test_rooms_form_no_cycle() -> None:
    """Commands included, which FLOW does not order."""
    graph: dict[str, set[str]] = {}
    for path in SOURCES:
        graph.setdefault(room(path), set()).update(imported_rooms(path))
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"folders import each other: {' <- '.join(error.args[1])}")


def test_files_form_no_cycle() -> None:
    """Within a folder too, and through imports inside functions."""
    graph: dict[str, set[str]] = {}
    for path in SOURCES:
        me = name(path).removesuffix(".py").replace("/", ".")
        graph[me] = {module for module in imports(path) if is_ours(module)} - {me}
    files = set(graph)
    try:
        graphlib.TopologicalSorter({me: found & files for me, found in graph.items()}).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"files import each other: {' <- '.join(error.args[1])}")


def test_folders_are_flat() -> None:
    for path in SOURCES:
        levels = len(path.parent.relative_to(ROOT).parts)
        assert levels <= MOST_LEVELS, f"{name(path.parent)} is {levels} levels below the top"


def test_large_rooms_have_a_page() -> None:
    for where, weight in weights().items():
        folder = ROOT / where
        if where.startswith("pipeline/") and folder.is_dir() and weight.lines >= LARGE_ROOM:
            assert any(folder.rglob("README.md")), f"{where} has no README.md"


def test_the_product_does_not_need_its_tests() -> None:
    for path in SOURCES:
        assert not uses(path, "tests"), f"{name(path)} imports from tests"


def test_top_level_is_fixed() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    found = {line.split("/")[0] for line in tracked if line and not line.startswith(".")}
    assert found <= TOP_LEVEL


def test_layers() -> None:
    """Data flows one way, and preparing needs no torch."""
    for path in SOURCES:
        module = name(path)
        if module.startswith("model/"):
            assert not uses(path, "pipeline") and not uses(path, "deepspeed")
            assert not uses(path, "torch.distributed")
        may_use_torch = module.startswith(WITH_TORCH)
        assert may_use_torch or not uses(path, "torch"), f"{module} imports torch"


def test_preparing_works_without_torch() -> None:
    """A process in which torch cannot be imported can import every command of this stage."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import pipeline.prepare, pipeline.train_tokenizer, pipeline.inspect, pipeline.recipes"
    )
    import sys

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_one_file_imports_deepspeed() -> None:
    assert len([path for path in SOURCES if uses(path, "deepspeed")]) <= 1


def test_scripts_that_join_a_process_group_leave_as_commands_do() -> None:
    """In the interpreter's clean-up a thread of the group can abort what has done its work."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if re.search(r"init_distributed\(|Cluster\.join\(", text) and "__main__" in text:
            assert re.search(r"run_command\(\w+, at_once=True\)", text), name(path)


def test_no_pickle_is_read() -> None:
    for path in SOURCES:
        assert not uses(path, "pickle"), f"{name(path)} imports pickle"
        assert not re.search(r"torch\.load|allow_pickle", path.read_text()), name(path)


def test_locks_are_opened_in_one_place() -> None:
    """`open("w")` would follow a link in place of the lock, and empty the file it leads to."""
    for path in SOURCES:
        text = path.read_text()
        if re.search(r"\bflock\(|\btry_lock\(", text):
            assert not re.search(r"\.open\(\"[wa]\"\)", text), f"{name(path)}: use files.open_lock"


def test_sizes() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert len(text.splitlines()) <= MOST_LINES, f"{name(path)} has over {MOST_LINES} lines"
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= MOST_FUNCTION_LINES, f"{name(path)}:{node.name} has {lines} lines"


def test_commands_parse_and_call() -> None:
    """What a command does is in the rooms; its own module parses and calls the stages."""
    for path in (ROOT / "pipeline").glob("*.py"):
        lines = len(path.read_text().splitlines())
        assert lines <= MOST_COMMAND_LINES, f"{name(path)} has {lines} lines; move some to a room"


def test_constructors_have_few_parameters() -> None:
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len((*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)) - 1
                assert count <= MOST_PARAMETERS, (
                    f"{name(path)}:{node.lineno} has {count} parameters"
                )


def test_small_modules_have_several_importers() -> None:
    """One with a single importer joins it, or the room it is about; a table may stand alone."""
    for path in SOURCES:
        lines = len(path.read_text().splitlines())
        if path.stem == "__init__" or lines >= SMALL_LINES or name(path) in SMALL_TABLES:
            continue
        module = name(path).removesuffix(".py").replace("/", ".")
        importers = [name(other) for other in SOURCES if module in imports(other)]
        assert len(importers) != 1, f"{name(path)} has {lines} lines; join it to {importers[0]}"


def test_inheritance_is_one_deep() -> None:
    ours = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    }
    # PipelineError has its kinds; the many settings of an encoder are one flat list to their users
    for child, bases in ours.items():
        for base in bases & set(ours) - {"PipelineError", "EncoderSizes", "LayerDesign"}:
            pytest.fail(f"{child} inherits from {base}; share by composition")


def test_docs() -> None:
    """Every module, public class and public function says what it is."""
    for path in SOURCES:
        tree = nodes(path)[0]
        assert isinstance(tree, ast.Module)
        assert ast.get_docstring(tree), f"{name(path)} has no docstring"
        for node in _public(tree):
            if node.name != "main":
                assert ast.get_docstring(node), f"{name(path)}:{node.name} has no docstring"


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def test_one_owner_a_key() -> None:
    """A setting of Run has no second name: no command has an option called like one."""
    from pipeline.config.run import Run
    from pipeline.config.settings import setting_types

    leaves = {path.rsplit(".", 1)[-1].replace("_", "-") for path in setting_types(Run)}
    # the contract of train_tokenizer, of prepare, and of evaluate, which scores models of no run
    derived = {"vocab-size", "kind", "tokenizer", "grammar", "mask-rate"}
    for path in SOURCES:
        options = set(re.findall(r'add_argument\(\s*"--([a-z-]+)"', path.read_text()))
        assert not (options & leaves - derived), f"{name(path)} repeats {options & leaves}"


def test_the_product_names_no_machine() -> None:
    """No path of a developer's machine, no registry host."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    pattern = re.compile(
        rb"/(?:home|root|work|Users)/[a-z][\w.-]*/|://[\w.]*(?:pypi|pythonhosted)\b"
    )
    for file in filter(None, tracked):
        path = ROOT / file
        if path.exists() and path.resolve() != Path(__file__).resolve():
            assert not pattern.search(path.read_bytes()), file
