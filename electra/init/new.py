"""`electra new`: make a workspace for an installed package, with the files that a clone of the repository has.

The files are the repository's own: `setup.py` puts those that ``workspace/files.txt`` lists into the package, and an
editable installation reads them where they are. Three are changed: stages in ``dvc.yaml`` depend on the copy of the
installed code (:mod:`electra.init.code`), ``params.yaml`` names the chosen profile, and ``prefect.yaml`` names flows by
module.
"""

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import yaml

from electra.common.errors import ConfigError, InfrastructureError
from electra.common.output import cannot_write, disk_errors
from electra.init.yaml_text import with_profile
from electra.inputs import with_watched
from electra.tasks.catalogue import TASKS

OWN = Path(__file__).with_name("workspace")
RENAMED = {"gitignore": ".gitignore"}
UNFINISHED, COMPLETE = ".electra-new.building", ".electra-new"  # folders in the new workspace
LAST = "dvc.yaml"  # moved last: a folder without it is no workspace

STAGES = """\
# The pipeline: what depends on what. `dvc repro` runs what is out of date, `dvc dag` draws it.
# A stage depends on the code that it runs, the data it reads and the sections of the profile it uses. The code is that
# of the installed package: the stage `code` copies it, and runs every time, so that an upgrade is noticed.
# Reports of the validate_* stages are dependencies of what comes after, so that a critical failure stops the pipeline.
# `meta` is for the flows (time limits, GPUs); DVC ignores it.
stages:
  code:
    desc: Copy the code of the installed package, on which the other stages depend
    cmd: electra code
    always_changed: true
    outs: [data/code: {persist: true}]

"""


def workspace_files(profile: str) -> dict[str, bytes]:
    """Return the files of a new workspace: path -> content.

    Args:
        profile: the profile that ``params.yaml`` chooses.

    Raises:
        ConfigError: the installation has no such files, there is no such profile, or it needs files of the user's.
    """
    root = OWN if (OWN / LAST).is_file() else OWN.parents[2]  # the latter in an editable installation
    if not (root / LAST).is_file():
        raise ConfigError(
            "this installation has no files for a workspace",
            where=str(root),
            next_step="install the package from a wheel or from a clone of the repository",
        )
    listed = (OWN / "files.txt").read_text(encoding="utf-8").split()
    found = {RENAMED.get(name, name): (OWN / name).read_bytes() for name in ("README.md", "gitignore")}
    found |= {str(file.relative_to(root)): file.read_bytes() for name in listed for file in sorted(root.glob(name))}
    _check_profile(profile, found)
    tasks = [name for name, spec in TASKS.items() if spec.in_paper_mean or spec.source == "squad"]
    change = {name: _without_bundled for name in found if name.startswith("params/")} | {
        LAST: _on_installed_code,
        "params.yaml": lambda text: with_profile(text, profile, tasks),
        "prefect.yaml": lambda text: re.sub(r"entrypoint: flows/(\w+)\.py:", r"entrypoint: flows.\1.", text),
    }
    return found | {name: of(found[name].decode()).encode() for name, of in change.items()}


def _check_profile(profile: str, found: dict[str, bytes]) -> None:
    """Refuse a profile that is not there, and one whose texts are files: `electra init` writes those."""
    from_hub = [
        Path(name).stem
        for name, content in found.items()
        if name.startswith("params/")
        and {source["kind"] for source in yaml.safe_load(content)["corpus"]["sources"]} == {"hub"}
    ]
    if profile in from_hub:
        return
    if f"params/{profile}.yaml" in found:
        raise ConfigError(
            f"profile {profile} reads files, which a new workspace does not have",
            where="--profile",
            next_step=f"leave --profile out; then, in the workspace: electra init TEXTS --like {profile}",
        )
    raise ConfigError(
        f"there is no profile {profile!r}", where="--profile", next_step=f"choose one of: {', '.join(sorted(from_hub))}"
    )


def _without_bundled(profile: str) -> str:
    """Return a profile without the tasks and pairs that the repository brings; of `books` only the comment differs."""
    if profile.startswith("# The default"):
        about = (
            "# A recipe of minutes, for `electra init TEXTS --like books`; the books are in the project's repository"
        )
        return re.sub(r"^.*", about, profile, count=1)
    profile = re.sub(r"^  own:\n(  - data/labelled/.*\n)+", "  own: []\n", profile, flags=re.MULTILINE)
    return profile.replace("pairs: [data/labelled/blimp.jsonl]", "pairs: []")


def _on_installed_code(pipeline: str) -> str:
    """Return ``dvc.yaml`` with the stage `code`, dependencies on its output, and no files from outside yet."""
    stages = pipeline.partition("\nstages:\n")[2]
    return with_watched(STAGES + re.sub(r"(?<=[\s\[])electra/(?=\w)", "data/code/", stages), [])


def make_workspace(target: Path, profile: str) -> list[str]:
    """Make a workspace in a new or empty folder, with a git repository unless it is inside one.

    The files are written to a hidden folder inside ``target`` and moved when all are there: after a kill, the same
    command finishes what it began.

    Returns:
        The names in the new workspace, sorted.

    Raises:
        ConfigError: the folder is not empty, or see :func:`workspace_files`.
        InfrastructureError: the disk is full.
    """
    files = workspace_files(profile)
    try:
        if target.exists() and not target.is_dir():
            raise ConfigError(f"{target} is a file", next_step="choose another name")
        present = {path.name for path in target.iterdir()} - {".git", UNFINISHED} if target.is_dir() else set()
    except OSError as error:  # a name that is too long, a folder that may not be searched
        raise cannot_write(target, error) from None
    if present and COMPLETE not in present:
        raise ConfigError(
            f"{target} is not empty ({', '.join(sorted(present)[:3])}{', ...' if len(present) > 3 else ''})",
            next_step="choose another folder; `electra init` writes settings for the workspace that you are in",
        )
    try:
        with disk_errors(target):
            _write(target, files)
    except OSError as error:
        raise cannot_write(target, error) from None
    return sorted({name.partition("/")[0] + ("/" if "/" in name else "") for name in files})


def _write(target: Path, files: dict[str, bytes]) -> None:
    complete, unfinished = target / COMPLETE, target / UNFINISHED
    if not complete.is_dir():
        shutil.rmtree(unfinished, ignore_errors=True)
        for name, content in files.items():
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / name).write_bytes(content)
        _start_git(target, unfinished)
        unfinished.rename(complete)
    for path in sorted(complete.iterdir(), key=lambda path: path.name == LAST):
        path.rename(target / path.name)
    complete.rmdir()


def _start_git(target: Path, files: Path) -> None:
    """Make a git repository unless ``target`` is inside one; without git, DVC is set to work without it."""
    try:
        inside = subprocess.run(["git", "rev-parse"], cwd=target, capture_output=True).returncode == 0
        if not inside:
            subprocess.run(["git", "init", "--quiet"], cwd=target, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        (files / ".dvc/config.local").write_text("[core]\n    no_scm = true\n", encoding="utf-8")
    except subprocess.CalledProcessError as error:
        raise InfrastructureError(f"git init failed: {error.stderr.strip()}", where=str(target)) from None


def describe_workspace(target: Path, names: list[str], profile: str) -> str:
    """Return what was written and the next commands."""
    shown = target
    with suppress(ValueError):
        shown = target.absolute().relative_to(Path.cwd())
    lines = [("wrote", f"{shown}: {', '.join(names)}")]
    lines += [("profile", f"{profile}: texts and tasks from the Hugging Face hub")]
    lines += [("next", f"cd {shown}")] if shown != Path(".") else []
    lines += [
        ("" if lines[-1][0] == "next" else "next", "electra init TEXTS     settings for your own texts and labels"),
        ("", "electra check && dvc repro"),
    ]
    return "".join(f"{head:<9}{text}\n" for head, text in lines)
