"""A DVC remote on S3: push, lose everything, pull; what is damaged on the way is noticed. The server is on loopback."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.timeout(200)
# The shape of this project's pipeline: artefacts in DVC's cache, figures in git.
STAGES = {
    "shards": {"cmd": "python make.py data/shards", "deps": ["make.py"], "outs": ["data/shards"]},
    "pretrain": {
        "cmd": "python make.py models/pretrained results/pretrain.json results/pretrain.tsv",
        "deps": ["data/shards"],
        "outs": [
            "models/pretrained",
            {"results/pretrain.json": {"cache": False}},
            {"results/pretrain.tsv": {"cache": False}},
        ],
    },
}
MAKE = """\
import pathlib, sys
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    text = {".json": '{"loss": 1.5}', ".tsv": "step\\tloss\\n1\\t1.5\\n2\\t1.4\\n"}.get(path.suffix, name * 1000)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.write_text(text)
    else:
        path.mkdir()
        (path / "content").write_text(text)
"""


class Repository:
    """A clone with its own cache."""

    def __init__(self, root: Path):
        self.root = root

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "GIT_CONFIG_GLOBAL": os.devnull, "DVC_NO_ANALYTICS": "1"}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=120)

    def dvc(self, *arguments: str) -> str:
        done = self.run(sys.executable, "-m", "dvc", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def git(self, *arguments: str) -> None:
        names = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = self.run("git", *names, *arguments)
        assert done.returncode == 0, done.stderr

    def lose_everything(self) -> None:
        for name in ("data", "models", ".dvc/cache", ".dvc/tmp"):
            shutil.rmtree(self.root / name, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its address; credentials are in the environment and nowhere else."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(scope="module")
def bucket(server: str):
    import boto3

    made = boto3.resource("s3", endpoint_url=server).Bucket("storage")
    made.create()
    return made


@pytest.fixture(scope="module")
def pushed(server: str, bucket, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository whose stages have run and whose artefacts are in the remote, set up as docs/remotes.md says."""
    repository = Repository(tmp_path_factory.mktemp("repository"))
    (repository.root / "make.py").write_text(MAKE)
    (repository.root / "dvc.yaml").write_text(
        yaml.safe_dump({"stages": STAGES, "metrics": ["results/pretrain.json"], "plots": ["results/pretrain.tsv"]})
    )
    repository.git("init", "--quiet", "-b", "main")
    repository.dvc("init", "--quiet")
    repository.dvc("remote", "add", "--default", "storage", "s3://storage/electra")
    repository.dvc("remote", "modify", "storage", "endpointurl", server)
    repository.dvc("remote", "modify", "storage", "verify", "true")
    repository.dvc("repro", "--quiet")
    repository.git("add", "-A")
    repository.git("commit", "-qm", "all stages")
    repository.dvc("push", "--quiet", "--run-cache")
    return repository


def clone(pushed: Repository, folder: Path) -> Repository:
    pushed.git("clone", "--quiet", str(pushed.root), str(folder / "clone"))
    return Repository(folder / "clone")


def test_what_was_pushed_comes_back_and_nothing_is_out_of_date(pushed: Repository) -> None:
    before = (pushed.root / "dvc.lock").read_bytes()
    pushed.lose_everything()
    pushed.dvc("pull", "--quiet", "--run-cache")
    assert (pushed.root / "models/pretrained/content").read_text() == "models/pretrained" * 1000
    assert "up to date" in pushed.dvc("status")
    assert "in sync" in pushed.dvc("status", "--cloud")
    assert "didn't change" in pushed.dvc("repro") or "up to date" in pushed.dvc("repro")
    assert (pushed.root / "dvc.lock").read_bytes() == before


def test_clone_reads_metrics_and_plots_without_a_pull(pushed: Repository, tmp_path: Path) -> None:
    fresh = clone(pushed, tmp_path)
    assert "1.5" in fresh.dvc("metrics", "show", "--json")
    assert "loss" in fresh.dvc("plots", "show", "--json")
    assert not (fresh.root / "models/pretrained").exists()


def test_one_artefact_is_pulled_alone(pushed: Repository, tmp_path: Path) -> None:
    fresh = clone(pushed, tmp_path)
    fresh.dvc("pull", "--quiet", "models/pretrained")
    assert (fresh.root / "models/pretrained/content").is_file()
    assert not (fresh.root / "data/shards").exists()


def test_damaged_object_is_noticed_on_pull(pushed: Repository, bucket, tmp_path: Path) -> None:
    fresh = clone(pushed, tmp_path)
    key, content = next(
        (item.key, body)
        for item in bucket.objects.filter(Prefix="electra/files/md5/")
        if (body := item.get()["Body"].read()).startswith(b"models/pretrained")
    )
    bucket.put_object(Key=key, Body=content[:-1] + b"?")
    try:
        done = fresh.run(sys.executable, "-m", "dvc", "pull", "models/pretrained")
        assert done.returncode != 0, done.stdout + done.stderr
        assert not (fresh.root / "models/pretrained/content").exists(), "what is damaged does not reach the workspace"
    finally:
        bucket.put_object(Key=key, Body=content)
    fresh.dvc("pull", "--quiet")
    assert (fresh.root / "models/pretrained/content").read_bytes() == content


def test_credentials_stand_in_no_file(pushed: Repository) -> None:
    assert "test" not in (pushed.root / ".dvc/config").read_text()
