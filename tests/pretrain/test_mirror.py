"""Copies of checkpoints: restoring on a new machine, and behaviour when a copy is damaged or missing."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import torch

from electra.common.artifacts import write_manifest, write_text
from electra.common.errors import ConfigError, InfrastructureError
from electra.pretrain.checkpoint import Checkpoints
from tests.pretrain.test_resume import EVERY_STEP, weights
from tests.workspace import Workspace


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an S3 server on loopback; credentials and address are in the environment, as they would be."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="checkpoints")
        yield "s3://checkpoints/runs"
        fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def mirror(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    return f"file://{tmp_path}/mirror" if request.param == "file" else f"memory://mirror/{tmp_path.name}"


def run(folder: Path, mirror: str | None, keep: int = 2) -> Checkpoints:
    return Checkpoints(folder / "0123456789ab", keep, mirror)


def save(checkpoints: Checkpoints, step: int) -> None:
    value = torch.full((4, 3), float(step))
    checkpoints.folder.mkdir(parents=True, exist_ok=True)
    checkpoints.save(step, {"w": value}, {"exp_avg.w": value / 2}, {"curve": {"rows": [step]}})


def step_of(checkpoints: Checkpoints) -> int | None:
    saved = checkpoints.load_latest()
    if saved is None:
        return None
    state, weights, moments = saved
    assert weights["w"].eq(state["step"]).all() and moments["exp_avg.w"].eq(state["step"] / 2).all()
    return state["step"]


def in_mirror(mirror: str) -> list[str]:
    storage, path = fsspec.core.url_to_fs(f"{mirror}/0123456789ab")
    storage.invalidate_cache()
    return sorted(re.sub(r".*0123456789ab/", "", name) for name in storage.find(path))


def change(mirror: str, name: str) -> None:
    storage, path = fsspec.core.url_to_fs(f"{mirror}/0123456789ab/{name}")
    content = bytearray(storage.cat_file(path))
    content[-1] ^= 1
    storage.pipe_file(path, bytes(content))


def test_fresh_machine_goes_on_from_the_newest_checkpoint(mirror: str, tmp_path: Path) -> None:
    first = run(tmp_path / "first", mirror)
    for step in (1, 2, 3):
        save(first, step)
    names = [
        f"step_{step:09d}/{file}"
        for step in (2, 3)
        for file in ("moments.safetensors", "state.json", "weights.safetensors")
    ]
    assert in_mirror(mirror) == ["latest", *names], "as many are kept as on disk"
    fresh = run(tmp_path / "fresh", mirror)
    assert step_of(fresh) == 3
    assert (fresh.folder / "step_000000003/state.json").is_file()


def test_damaged_object_is_noticed_and_the_one_before_taken(mirror: str, tmp_path: Path, capsys) -> None:
    first = run(tmp_path / "first", mirror)
    for step in (1, 2):
        save(first, step)
    change(mirror, "step_000000002/weights.safetensors")
    assert step_of(run(tmp_path / "fresh", mirror)) == 1
    assert "mirrored step_000000002 is damaged (weights.safetensors)" in capsys.readouterr().out


def test_damage_on_disk_is_made_good_from_the_mirror(mirror: str, tmp_path: Path, capsys) -> None:
    here = run(tmp_path / "here", mirror)
    for step in (1, 2):
        save(here, step)
    file = here.folder / "step_000000002/weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert step_of(here) == 2
    said = capsys.readouterr().out
    assert "checkpoint step_000000002 is damaged" in said and "step_000000002 comes from" in said


def test_damage_everywhere_does_not_displace_what_is_written_after_it(mirror: str, tmp_path: Path) -> None:
    here = run(tmp_path / "here", mirror, keep=1)
    save(here, 9)
    change(mirror, "step_000000009/weights.safetensors")
    file = here.folder / "step_000000009/weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert step_of(here) is None
    save(here, 1)
    assert step_of(run(tmp_path / "fresh", mirror)) == 1


def test_upload_that_was_cut_short_is_not_taken(mirror: str, tmp_path: Path) -> None:
    save(run(tmp_path / "first", mirror), 1)
    storage, path = fsspec.core.url_to_fs(f"{mirror}/0123456789ab/step_000000002/weights.safetensors")
    storage.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    storage.pipe_file(path, b"half of it")
    assert step_of(run(tmp_path / "fresh", mirror)) == 1


def test_newer_checkpoint_on_disk_is_preferred(tmp_path: Path) -> None:
    mirror = f"file://{tmp_path}/mirror"
    here = run(tmp_path / "here", mirror)
    save(here, 1)
    save(run(tmp_path / "here", None), 2)
    assert step_of(here) == 2


def test_milestones_come_along(tmp_path: Path) -> None:
    mirror = f"file://{tmp_path}/mirror"
    first = run(tmp_path / "first", mirror)
    milestone = first.folder / "milestone_25"
    write_text(milestone / "tokenizer/vocab.txt", "[PAD]\n")
    write_manifest(milestone, step=1)
    save(first, 1)
    fresh = run(tmp_path / "fresh", mirror)
    assert step_of(fresh) == 1
    assert json.loads((fresh.folder / "milestone_25/manifest.json").read_text())["step"] == 1
    assert (fresh.folder / "milestone_25/tokenizer/vocab.txt").read_text() == "[PAD]\n"


def test_a_run_that_has_succeeded_leaves_no_checkpoint_in_the_mirror(mirror: str, tmp_path: Path) -> None:
    here = run(tmp_path / "here", mirror)
    for step in (1, 2):
        save(here, step)
    here.clear()
    assert in_mirror(mirror) == [] and not here.folder.exists()
    assert step_of(run(tmp_path / "here", mirror)) is None and step_of(run(tmp_path / "fresh", mirror)) is None
    here.clear()  # of a run that has ended before its first checkpoint


def test_a_mirror_that_cannot_be_cleared_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    here = run(tmp_path / "here", f"file://{tmp_path}/mirror")
    save(here, 1)
    assert here.mirror

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("no right to delete")

    monkeypatch.setattr(here.mirror.storage, "rm", refused)
    here.clear()
    said = capsys.readouterr().out
    assert f"remove file://{tmp_path}/mirror/0123456789ab, or" in said and "no right to delete" in said
    assert not here.folder.exists()


def test_a_finished_run_that_is_run_again_starts_at_step_0(workspace: Workspace) -> None:
    mirror = f"file://{workspace.root.parent}/mirror"
    cluster = {"checkpoint_minutes": EVERY_STEP, "checkpoint_mirror": mirror}
    workspace.write({"cluster": cluster}, pretrain={"num_steps": 8, "eval_every": 8})
    outputs = []
    for _ in range(2):
        said = workspace.pretrain()
        assert "starting electra: 8 steps" in said and "resuming" not in said
        outputs.append(weights(workspace))
    assert outputs[0] == outputs[1]


def test_storage_that_fails_does_not_end_the_training(tmp_path: Path, capsys) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the mirror's folder should be")
    checkpoints = run(tmp_path / "here", f"file://{blocked}")
    save(checkpoints, 1)
    assert "checkpoint step_000000001 is not mirrored" in capsys.readouterr().out
    assert step_of(run(tmp_path / "here", None)) == 1


def test_unreadable_mirror_ends_a_run_that_has_nothing_else_to_go_on_from(tmp_path: Path, monkeypatch, capsys) -> None:
    checkpoints = run(tmp_path / "here", f"file://{tmp_path}/mirror")
    assert checkpoints.mirror

    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(checkpoints.mirror, "_complete", unreachable)
    with pytest.raises(InfrastructureError, match="no route to host"):
        checkpoints.load_latest()
    save(run(tmp_path / "here", None), 1)
    assert step_of(checkpoints) == 1
    assert "going on from step_000000001" in capsys.readouterr().out


def test_url_that_nobody_knows_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this mirror cannot be used"):
        run(tmp_path, "s4://bucket")
