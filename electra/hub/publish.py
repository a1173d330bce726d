"""Publish exported folders on the Hugging Face hub: one repository per folder, with its card, in one commit."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import disable_progress_bars, httpx, validate_repo_id

from electra.cluster.run_facts import machine_file
from electra.common.artifacts import MANIFEST, listed_files, read_json, read_manifest, verify_files
from electra.common.errors import ConfigError, ElectraError, InfrastructureError
from electra.common.paths import Paths
from electra.tasks.matrix import PRETRAINED, SCRATCH

MAIN = ("discriminator", "encoder")  # folders of models/export from which others are derived
# Files that not every upload has; not imported from electra.hub.onnx and electra.hub.export, which import PyTorch
SOMETIMES_WRITTEN = ("onnx/model.onnx", "onnx/model_quantized.onnx", "onnx/check.json", "own_parts.safetensors")


@dataclass(frozen=True)
class Upload:
    """One repository to write.

    Attributes:
        repo: ``owner/name`` on the hub.
        files: path in the repository -> file, without the card.
        card: ``README.md``.
        branch: made from ``main`` where it does not exist; ``main`` if None.
    """

    repo: str
    files: dict[str, Path]
    card: str
    branch: str | None = None

    @property
    def name(self) -> str:
        return self.repo if self.branch is None else f"{self.repo} at {self.branch}"

    @property
    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values()) + len(self.card.encode())


def check_upload(name: str, license: str) -> None:
    """Check the name and licence given by the user.

    Raises:
        ConfigError: name or licence are not valid on the hub.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
        raise ConfigError(
            f"{license!r} is no identifier of a licence on the hub",
            next_step="give one such as apache-2.0, mit, cc-by-4.0, cc-by-sa-4.0 or other",
        )
    _check_name(f"{name}-{MAIN[0]}")


def plan_uploads(
    paths: Paths,
    name: str,
    license: str,
    tasks: list[Path],
    milestones: Path | None = None,
    with_graphs: Path | None = None,
) -> list[Upload]:
    """Return a repository for every folder of ``models/export``, ``<name>-<folder>``, and every fine-tuned model.

    That of a fine-tuned model is ``<name>-<task>``, followed by the start where this is not the pre-trained encoder.

    Args:
        name: ``owner/name`` that the repositories' names begin with.
        license: the hub's identifier.
        tasks: folders of :func:`electra.hub.finetuned.export_task`.
        milestones: folder of :func:`electra.hub.milestones.export_milestones`; each milestone is a branch of the
            repositories of ``models/export``.
        with_graphs: folder of :func:`electra.hub.encoder_onnx.export_encoder_onnx`, published in place of the main one
            of ``models/export``: the same weights, with ONNX graphs.

    Raises:
        ConfigError: name or licence are not valid on the hub, or two models have the same repository.
        DataError: an export is missing, or its files have changed.
    """
    check_upload(name, license)
    others = [*tasks, with_graphs] if with_graphs else tasks
    verify_files([file for folder in (paths.export, *others) for file in listed_files(folder)])
    folders = sorted({Path(entry["path"]).parts[0] for entry in read_manifest(paths.export)["files"]})
    main = next((folder for folder in folders if folder in MAIN), folders[0])
    ran_on, uploads = _machine(paths), []
    for folder in sorted(folders, key=lambda folder: folder != main):
        base = f"{name}-{main}" if folder == "detector" else None  # the generator is not derived from another folder
        source = with_graphs if with_graphs and folder == main else paths.export / folder
        uploads.append(_upload(source, name, folder, license, base, ran_on))
    for path in tasks:
        facts = read_manifest(path)
        run, start = facts["task"], facts.get("start", str(PRETRAINED))
        if start != str(PRETRAINED):
            run += f"-{start}"
        slug = re.sub(r"[^a-z0-9.]+", "-", run.lower()).strip("-.")
        base = None if start == str(SCRATCH) else f"{name}-{main}"
        uploads.append(_upload(path, name, slug, license, base, ""))
    if milestones is not None:
        verify_files(listed_files(milestones))
        for milestone in read_manifest(milestones)["milestones"]:
            for folder in sorted(path.name for path in (milestones / milestone).iterdir()):
                plan = _upload(milestones / milestone / folder, name, folder, license, None, ran_on)
                uploads.append(replace(plan, branch=milestone))
    for upload in uploads:
        _check_name(upload.repo)
    repeated = [repo for repo, number in Counter(upload.name for upload in uploads).items() if number > 1]
    if repeated:
        raise ConfigError(
            f"two models would be written to {repeated[0]}",
            where="--task",
            next_step="publish one of them under another OWNER/NAME; rename an own task called encoder or generator",
        )
    return uploads


def _check_name(repo: str) -> None:
    try:
        if repo.count("/") != 1:
            raise HFValidationError("it is not of the form owner/name")
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ConfigError(f"{repo} cannot be a repository: {error}", next_step="give OWNER/NAME") from None


def _upload(folder: Path, name: str, suffix: str, license: str, base: str | None, ran_on: str) -> Upload:
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {path: file for path, file in found.items() if path not in ("README.md", MANIFEST)}
    card = ModelCard.load(folder / "README.md")
    card.data.license = license
    if base is not None:
        card.data.base_model = base
    text = card.text.replace("path/to/this/folder", f"{name}-{suffix}").replace("path/to/", f"{name}-").strip()
    return Upload(f"{name}-{suffix}", files, f"---\n{card.data.to_yaml()}\n---\n\n{text}\n{ran_on}")


def _machine(paths: Paths) -> str:
    """Return machine and duration of pre-training; kept out of the artefact, whose bytes are reproducible."""
    file = machine_file(paths)
    facts: dict[str, Any] = (read_json(file) if file.is_file() else {}).get("pretrain", {})
    if not facts:
        return ""
    return (
        f"\n## Machine\n\nPre-trained in {facts.get('minutes', 0):,.1f} minutes on {facts.get('device')}: "
        f"{facts.get('processor')}, {facts.get('cores')} cores, torch {facts.get('torch')}.\n"
    )


def describe(uploads: list[Upload]) -> str:
    """Return the repositories with their files and cards as text."""
    lines = []
    for upload in uploads:
        lines.append(f"{upload.name}: {upload.num_bytes:,} bytes")
        lines += [f"  {name}  {path.stat().st_size:,}" for name, path in upload.files.items()]
        lines += ["  README.md:", *(f"    {line}".rstrip() for line in upload.card.splitlines()), ""]
    return "\n".join(lines)


def hub_token() -> str:
    """Return the token of the hub's library.

    Raises:
        ConfigError: there is no token.
    """
    if (token := get_token()) is None:
        raise ConfigError(
            "there is no token of the Hugging Face hub",
            next_step="run: hf auth login (or set HF_TOKEN); --dry-run shows what would be published without one",
        )
    return token


def upload_all(uploads: list[Upload], *, private: bool = False) -> list[str]:
    """Write the repositories, each in one commit, creating them if needed, and return their addresses.

    The token is the library's: ``HF_TOKEN`` or ``hf auth login``.

    Raises:
        ConfigError: there is no token, it has no write access, or the hub rejects the card.
        InfrastructureError: the hub cannot be reached or failed; earlier repositories stay written.
    """
    token = hub_token()
    disable_progress_bars()
    api, done = HfApi(), list[str]()
    for upload in uploads:
        try:
            done.append(_commit(api, upload, private))
        except (HfHubHTTPError, httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
            raise _explained(error, upload, done, token) from None
        print(f"publish: {done[-1]}: {len(upload.files) + 1} files, {upload.num_bytes:,} bytes", flush=True)
    return done


def _commit(api: HfApi, upload: Upload, private: bool) -> str:
    api.create_repo(upload.repo, private=private, exist_ok=True)
    files: dict[str, Path | bytes] = {**upload.files, "README.md": upload.card.encode()}
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()
    ]
    if upload.branch is not None:
        api.create_branch(upload.repo, branch=upload.branch, exist_ok=True)
    for name in SOMETIMES_WRITTEN:  # those of an earlier upload, or of the branch's origin, may be of other weights
        if name not in files and api.file_exists(upload.repo, name, revision=upload.branch):
            operations.append(CommitOperationDelete(path_in_repo=name))
    api.create_commit(upload.repo, operations, commit_message="Publish with electra-pipeline", revision=upload.branch)
    return f"{api.endpoint}/{upload.repo}" + (f"/tree/{upload.branch}" if upload.branch else "")


def _explained(error: Exception, upload: Upload, done: list[str], token: str) -> ElectraError:
    """Convert the library's error: ConfigError for the token or the card, InfrastructureError if a retry may help."""
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    said = ": ".join(" ".join(str(cause).split()) for cause in causes).replace(token, "<token>")
    response = next((cause.response for cause in causes if isinstance(cause, HfHubHTTPError)), None)
    status = getattr(response, "status_code", None)
    written = f"written before it: {', '.join(done)}" if done else "nothing was written before it"
    if status in (401, 403):
        return ConfigError(
            f"the hub does not let this token write {upload.name}: {said:.500}",
            where=written,
            next_step="make a token with the right to write at https://huggingface.co/settings/tokens and log in again",
        )
    if isinstance(error, OfflineModeIsEnabled):
        return InfrastructureError("the hub is switched off by HF_HUB_OFFLINE", next_step="unset it and run again")
    if isinstance(error, ValueError) and (status is None or status == 400):
        return ConfigError(f"the hub refuses {upload.name}: {said:.500}", where=written)
    return InfrastructureError(
        f"{upload.name} could not be published: {said:.500}",
        where=written,
        next_step="check the network and run the same command again: uploaded files are not sent again",
    )
