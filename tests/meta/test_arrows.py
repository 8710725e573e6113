"""Who may import whom: core <- rooms <- benchmarks <- tests."""

import ast
import re
import sys

import pytest

from tests.meta.tree import ROOMS, Import, Source, everything, imports_of, library

LAZY = {
    ("ttc", "ttc.strategies.cascade"): "`ttc.confidence` is loaded when it is asked for",
}
"""What core modules import of a room, never with the module itself, each with its reason."""

NAMES_ROOMS = {"ttc.registry": "it turns names into rooms, and imports them only when asked"}
"""The core modules that hold the name of a room's module as text."""


def _core() -> list[Source]:
    return [source for source in library() if source.room == "ttc"]


def _room_of(module: str) -> str:
    """The room that a module of ours lies in; `ttc` is the core, and empty is somebody else's."""
    first, _, rest = module.partition(".")
    second = rest.partition(".")[0]
    return "" if first != "ttc" else second if second in ROOMS else "ttc"


def test_the_core_imports_no_room() -> None:
    """Rooms are reached through the registry alone; the listed exceptions are lazy."""
    found = [
        ((source.module, module), when)
        for source in _core()
        for module, _, when in source.imports()
        if _room_of(module) in ROOMS and not _names_a_thing(source, module)
    ]
    arrows = {arrow for arrow, _ in found}

    assert sorted(arrows - set(LAZY)) == []
    assert sorted(set(LAZY) - arrows) == [], "take these off the list"
    assert [arrow for arrow, when in found if when == "import"] == []


def _names_a_thing(source: Source, module: str) -> bool:
    """Whether `module` is only the second reading of `from a import b`, and `a` is there too."""
    parents = {entry.module for entry in source.imports()}
    return module.rpartition(".")[0] in parents and module.rpartition(".")[0] not in ("ttc", "")


def test_only_the_registry_names_the_modules_of_rooms() -> None:
    """A module's name in a string is an import that no tool sees."""
    name = re.compile(rf"ttc\.({'|'.join(ROOMS)})\b[\w.:]*")
    found = {
        source.module
        for source in _core()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and name.fullmatch(str(node.value))
    }

    assert found == set(NAMES_ROOMS)


@pytest.mark.parametrize("room", ["strategies", "verifiers", "engine"])
def test_a_room_imports_the_core_and_itself(room: str) -> None:
    """Strategies, verifiers and engines know nothing of each other."""
    wrong = [
        f"{source.path}:{line} imports {module}"
        for source in library()
        if source.room == room
        for module, line, _ in source.imports()
        if _room_of(module) not in ("", "ttc", room)
    ]

    assert wrong == []


def test_nothing_is_imported_by_the_bare_name_of_its_folder() -> None:
    """`import strategies` would make a second copy of every module, and of every class."""
    wrong = [
        f"{source.path}:{entry.line} imports {entry.module}"
        for source in everything()
        for entry in source.imports()
        if entry.module.partition(".")[0] in ROOMS or entry.module.startswith(".")
    ]

    assert wrong == []


def test_the_library_never_imports_its_tests_or_examples() -> None:
    """They are not shipped."""
    wrong = [
        f"{source.path}:{entry.line} imports {entry.module}"
        for source in library()
        for entry in source.imports()
        if entry.module.partition(".")[0] in ("tests", "examples")
    ]

    assert wrong == []


def test_the_nouns_and_the_ports_need_the_standard_library_alone() -> None:
    """Whoever writes an engine or a verifier depends on these."""
    values = {
        "ttc.types",
        "ttc.branch",
        "ttc.messages",
        "ttc.errors",
        "ttc.costs",
        "ttc.usage",
        "ttc.capabilities",
        "ttc.call_grammars",
        "ttc.constraints",
        "ttc.schemas",
    }
    own = values | {"ttc.ports", "ttc.stream_port", "ttc.pace", "ttc.clock", "ttc.generation"}
    foreign = [
        f"{source.path}:{line} imports {module}"
        for source in _core()
        if source.module in own
        for module, line, when in source.imports()
        if when == "import" and not _is_standard(module) and not _is_one_of(module, own)
    ]

    assert foreign == []


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_one_of(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def test_the_walk_sees_imports_wherever_they_are() -> None:
    """At the top, inside a function, and for type checkers; `from` gives both readings."""
    code = (
        "import a.b\n"
        "if TYPE_CHECKING:\n    from c import d\n"
        "def f():\n    try:\n        import e\n    except ImportError:\n        pass\n"
    )

    assert list(imports_of(ast.parse(code))) == [
        Import("a.b", 1, "import"),
        Import("c", 3, "typing"),
        Import("c.d", 3, "typing"),
        Import("e", 6, "call"),
    ]
