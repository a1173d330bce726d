"""Workspace of a run: an existing folder, or a new clone with a shared DVC cache.

DVC's locks work on one host only: two hosts must never work in one folder. On a cluster each run therefore has its own
clone; the runs share the DVC cache (a folder that all hosts see, a DVC remote, or both) and the checkpoints.
"""

import base64
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml import YAML

from electra.common.errors import InfrastructureError
from electra.common.locks import exclusive
from flows.guard import guarded
from flows.stages import NETWORK, InfrastructureFailure, StageFailure, stage_environment

AUTHOR = {"GIT_AUTHOR_NAME": "flow", "GIT_AUTHOR_EMAIL": "flow@localhost"}
COMMITTER = {"GIT_COMMITTER_NAME": "flow", "GIT_COMMITTER_EMAIL": "flow@localhost"}


class Workspace(BaseModel):
    """The parameter ``workspace`` of every flow."""

    model_config = ConfigDict(extra="forbid")

    root: Path = Field(Path("."), description="the folder that holds dvc.yaml; not used with repository")
    repository: str | None = Field(None, description="git URL or folder: work in a clone of it")
    revision: str | None = Field(None, description="branch or tag to clone; the repository's default otherwise")
    token: str | None = Field(
        None, description="name of the Prefect Secret block with the token for an https repository"
    )
    settings: dict[str, Any] = Field({}, description="changes to the clone's settings: {pretrain.objective: bert}")
    shared: Path | None = Field(
        None, description="folder that all hosts see, for DVC cache and checkpoints; a local repository's own otherwise"
    )
    publish: str | None = Field(None, description="branch of the repository to commit dvc.lock and results/ to")
    clones: Path = Field(Path(tempfile.gettempdir()) / "electra-runs", description="where clones are made")


@contextmanager
def opened(workspace: Workspace, run_name: str, say: Callable[[str], object] = print) -> Iterator[Path]:
    """Yield the folder to work in, locked for this run.

    A clone is removed when the run succeeds, after its results are pushed. After a failure it is kept for inspection,
    and where neither a folder outside it nor a DVC remote has the outputs.

    Args:
        say: receives the messages that a clone is kept after success, and that the push after a failure failed too.

    Raises:
        InfrastructureFailure: another run works there, or a repository or remote cannot be reached.
        StageFailure: the repository, its revision, the settings or the branch to publish to are invalid, or that branch
            has changed during the run.
    """
    if workspace.repository is None:
        if workspace.settings or workspace.publish:
            raise StageFailure("workspace", 2, ["settings and publish need a clone: give repository as well"])
        with alone(workspace.root):
            yield workspace.root
        return
    if not workspace.repository:
        raise StageFailure(
            "workspace", 2, ["repository is empty: prefect variable set electra_repository URL, then deploy again"]
        )
    root = workspace.clones / run_name
    credentials = git_credentials(workspace)
    with alone(root, lock=root):  # beside the clone: another run of this name must not remove it before it asks
        shutil.rmtree(root, ignore_errors=True)
        is_cache_outside = _clone(workspace, root, credentials)
        replaced = _branch_to_replace(root, workspace.publish, workspace.revision) if workspace.publish else ""
        change_settings(root, workspace.settings)
        has_remote = _dvc_if_remote(root, "pull", "--run-cache", "--allow-missing")
        with alone(root):  # `make flow` in the clone has only this lock
            try:
                yield root
            except BaseException:
                _push_after_failure(root, say)
                raise
            _dvc_if_remote(root, "push", "--run-cache")
        if workspace.publish:
            _publish(root, workspace.publish, replaced, run_name, credentials)
        if is_cache_outside or has_remote:
            shutil.rmtree(root)
        else:  # git has the scores, but not the models
            say(f"{root} is kept: it holds the only copy of the models, since there is no DVC remote and no `shared`")


@contextmanager
def alone(root: Path, lock: Path | None = None) -> Iterator[None]:
    """Lock the workspace; the system releases the lock when this process ends, in whatever way.

    Args:
        lock: the path that is locked, ``logs/flow`` of the workspace by default.

    Raises:
        InfrastructureFailure: another run holds the lock.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(lock or root / "logs" / "flow"))
        except InfrastructureError as error:
            holder = error.what.rpartition(": ")[2]
            raise InfrastructureFailure(
                "workspace",
                [f"another flow run ({holder}) works in {root.resolve()}: wait for it or cancel it"],
            ) from None
        yield


def change_settings(root: Path, settings: dict[str, Any]) -> None:
    """Write settings by their dotted names: ``profile`` first, then each into the file that has it, else params.yaml.

    Raises:
        StageFailure: a part of a name is not a section.
    """
    yaml = YAML()
    common = root / "params.yaml"
    for name in sorted(settings, key=lambda name: name != "profile"):
        profile = root / "params" / f"{yaml.load(common)['profile']}.yaml"
        is_set = _value(yaml.load(common), name) is not None  # also where the profile has the key: pretrain.objective
        file = profile if not is_set and profile.is_file() and _has(yaml.load(profile), name) else common
        document = yaml.load(file)
        *sections, key = name.split(".")
        section = document
        for part in sections:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise StageFailure("settings", 2, [f"{name}: {part} is not a section of {file.name}"])
        section[key] = settings[name]
        yaml.dump(document, file)


def _has(document: Any, name: str) -> bool:
    *sections, key = name.split(".")
    section = _value(document, ".".join(sections)) if sections else document
    return isinstance(section, dict) and key in section


def _value(document: Any, name: str) -> Any:
    for part in name.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _clone(workspace: Workspace, root: Path, credentials: Mapping[str, str]) -> bool:
    """Clone the repository; return whether DVC's cache lies outside the clone."""
    assert workspace.repository is not None
    branch = ["--branch", workspace.revision] if workspace.revision else []
    root.parent.mkdir(parents=True, exist_ok=True)
    repository = located(workspace.repository)
    _run(root.parent, ["git", "clone", "--quiet", *branch, "--", repository, str(root)], credentials)
    shared = workspace.shared.resolve() if workspace.shared else None
    if shared:
        cache, checkpoints = shared / "cache", shared / "checkpoints"
    elif (Path(repository) / ".dvc").is_dir():  # a repository on this host: reuse its results
        cache, checkpoints = Path(_dvc(Path(repository), "cache", "dir").strip()), Path(repository) / "checkpoints"
    else:
        return False
    for folder in (cache, checkpoints):
        folder.mkdir(parents=True, exist_ok=True)
    _dvc(root, "config", "--local", "cache.dir", str(cache))
    (root / "checkpoints").symlink_to(checkpoints)
    return True


def git_credentials(workspace: Workspace) -> dict[str, str]:
    """Return environment variables with which git sends the workspace's token; none without a token.

    The token is in no command line, URL or file. Only the repository's address gets it.

    Raises:
        StageFailure: the server has no such Secret block.
    """
    if workspace.token is None:
        return {}
    from prefect.blocks.system import Secret

    try:
        secret = str(Secret.load(workspace.token).get())  # type: ignore[union-attr]  # outside a coroutine it is a block
    except ValueError as error:
        raise StageFailure("workspace", 2, [f"token: {error}"]) from None
    basic = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{workspace.repository}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
    }


def located(repository: str) -> str:
    """Return a folder's absolute path, since clones are made elsewhere; a URL is returned unchanged."""
    return str(Path(repository).resolve()) if Path(repository).is_dir() else repository


def _branch_to_replace(root: Path, branch: str, revision: str | None) -> str:
    """Return the commit of the branch to publish to, '' for a new branch.

    Raises:
        StageFailure: the name is not valid, or the branch is the one that the run started from or the default one.
    """
    if _git(root, "check-ref-format", f"refs/heads/{branch}").returncode:
        raise StageFailure("workspace", 2, [f"publish: {branch!r} is not a valid name of a branch"])
    default = _git(root, "symbolic-ref", "--short", "refs/remotes/origin/HEAD").stdout.strip().removeprefix("origin/")
    if branch in (default, revision):
        raise StageFailure(
            "workspace", 2, [f"publish: {branch} holds the code, and its commits would be lost: name another branch"]
        )
    return _git(root, "rev-parse", "--verify", "--quiet", f"refs/remotes/origin/{branch}").stdout.strip()


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a git command that works without the network and may fail."""
    return subprocess.run(["git", *arguments], cwd=root, env=stage_environment(root), capture_output=True, text=True)


def _publish(root: Path, branch: str, replaced: str, run_name: str, credentials: Mapping[str, str]) -> None:
    """Commit the run's results to a separate branch; the repository's other branches are not touched.

    Args:
        replaced: the branch's commit when the run started. If others have pushed to it since, git refuses.
    """
    paths = ("params.yaml", "params", "dvc.yaml", "dvc.lock", "results")  # dvc.yaml: it lists the external inputs
    found = [name for name in paths if (root / name).exists()]
    _run(root, ["git", "add", "--", *found])
    _run(root, ["git", "commit", "--quiet", "--allow-empty", "-m", f"Results of run {run_name}"])
    target = f"refs/heads/{branch}"
    lease = f"--force-with-lease={target}:{replaced}"
    _run(root, ["git", "push", "--quiet", lease, "origin", f"HEAD:{target}"], credentials)


def _push_after_failure(root: Path, say: Callable[[str], object]) -> None:
    """Push the stages that succeeded before another failed, so that they need not run again elsewhere.

    A failure of the push is told only: the run ends with the stage's own failure and exit code.
    """
    try:
        _dvc_if_remote(root, "push", "--run-cache")
    except StageFailure as failure:
        say(
            f"{root}: the stages that succeeded are not all in the DVC remote, since the push after the run's failure "
            f"failed too; next: dvc push --run-cache there\n{failure}"
        )


def _dvc_if_remote(root: Path, *arguments: str) -> bool:
    """Run a DVC command if there is a remote; return whether there is. The command ends with this process."""
    if not _dvc(root, "remote", "list").strip():
        return False
    _run(root, guarded([sys.executable, "-m", "dvc", *arguments]))  # a transfer may take hours
    return True


def _dvc(root: Path, *arguments: str) -> str:
    return _run(root, [sys.executable, "-m", "dvc", *arguments])


def _run(folder: Path, command: list[str], credentials: Mapping[str, str] = MappingProxyType({})) -> str:
    environment = {**stage_environment(folder), "GIT_TERMINAL_PROMPT": "0", **AUTHOR, **COMMITTER, **credentials}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        what = "dvc" if command[0] == sys.executable else "git"
        tail = [" ".join(command), *(done.stdout + done.stderr).splitlines()[-15:]]
        is_network = NETWORK.search(done.stderr) or "Could not resolve host" in done.stderr
        raise InfrastructureFailure(what, tail) if is_network else StageFailure(what, 2, tail)
    return done.stdout
