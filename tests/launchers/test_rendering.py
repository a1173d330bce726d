"""Commands, scripts and manifests of launchers, compared with golden files and Kubernetes' schemas.

Where a change is meant: copy the new text into the golden file, and say why.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from electra.cluster.launchers.job import Job
from electra.cluster.launchers.pretraining import LAUNCHERS, render_pretraining
from electra.common.errors import ConfigError
from electra.config import Cluster
from tests.workspace import Workspace

GOLDEN = Path(__file__).parent / "golden"
CLUSTERS = {
    "local": {"num_processes": 2},
    "torchrun": {"num_processes": 16, "num_nodes": 2, "torchrun": {"endpoint": "node1:29400"}},
    "deepspeed": {"num_processes": 16, "num_nodes": 2, "deepspeed": {"hostfile": "hosts"}},
    "slurm": {
        "num_processes": 16,
        "num_nodes": 2,
        "slurm": {
            "partition": "gpu",
            "account": "nlp",
            "time_limit_minutes": 720,
            "cpus_per_task": 12,
            "memory_gb": 480,
            "setup": ["module load cuda"],
            "options": {"reservation": "my run", "exclusive": True},
        },
    },
    "kubernetes": {
        "num_processes": 16,
        "num_nodes": 2,
        "kubernetes": {
            "image": "registry.example.org/electra:1",
            "namespace": "nlp",
            "volume_claim": "workspaces",
            "sub_path": "runs/base",
            "cpus": "96",
            "memory": "512Gi",
            "shared_memory": "64Gi",
            "service_account": "trainer",
            "node_selector": {"gpu": "h200"},
            "labels": {"kueue.x-k8s.io/queue-name": "gpus"},
            "secret": "s3-credentials",
        },
    },
}


def job(launcher: str, **changes: object) -> Job:
    cluster = Cluster.model_validate({"launcher": launcher, **CLUSTERS[launcher], **changes})
    assert isinstance(cluster.num_processes, int)
    return Job("0123456789ab", Path("/shared/my runs/electra"), cluster, cluster.num_processes)


def rendered(launcher: str, **changes: object) -> str:
    text = LAUNCHERS[launcher]().render(job(launcher, **changes))
    return text.replace(sys.executable, "PYTHON")


def manifests(**changes: object) -> list[dict]:
    return list(yaml.safe_load_all(rendered("kubernetes", **changes)))


@pytest.mark.parametrize("launcher", CLUSTERS)
def test_rendered_text_is_the_golden_one(launcher: str) -> None:
    assert rendered(launcher) == (GOLDEN / f"{launcher}.txt").read_text()


@pytest.mark.parametrize("version", ["1.29", "1.32", "1.37"])
def test_manifests_fit_the_schemas_of_kubernetes(version: str) -> None:
    minimal = {"num_nodes": 1, "num_processes": 1, "device": "cpu", "kubernetes": {"image": "i", "volume_claim": "c"}}
    for manifest in [*manifests(), *manifests(**minimal)]:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_schema_check_notices_a_wrong_field() -> None:
    _, wrong = manifests()
    wrong["spec"]["template"]["spec"]["restartPolice"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.32", strict=True)


def test_pods_ask_for_gpus_unless_the_run_is_on_the_cpu() -> None:
    def limits(**changes: object) -> dict:
        return manifests(**changes)[1]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]

    assert limits()["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in limits(device="cpu")
    assert "gpus-per-node" not in rendered("slurm", device="cpu")


def test_pods_take_what_gpu_nodes_want() -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    settings = {
        **CLUSTERS["kubernetes"]["kubernetes"],
        "tolerations": [toleration],
        "resources": {"rdma/hca_shared_devices_a": "1"},
        "capabilities": ["IPC_LOCK"],
        "environment": {"NCCL_SOCKET_IFNAME": "eth0"},
    }
    documents = manifests(kubernetes=settings)
    for document in documents:
        kubernetes_validate.validate(document, "1.32", strict=True)
    pod = documents[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["tolerations"] == [toleration]
    assert container["resources"]["limits"]["rdma/hca_shared_devices_a"] == "1"
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "eth0"} in container["env"]


def test_slurm_tasks_beside_a_gpu_get_cores_by_default() -> None:
    plain = {"partition": "gpu"}
    assert "--cpus-per-task=8" in rendered("slurm", slurm=plain)
    assert "cpus-per-task" not in rendered("slurm", slurm=plain, device="cpu")


def slots(monkeypatch: pytest.MonkeyPatch, visible: str | None, processes: int) -> list:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    command = rendered("deepspeed", num_nodes=1, num_processes=processes)
    (world,) = re.findall(r"--world_info=(\S+)", command)
    return json.loads(base64.urlsafe_b64decode(world))["localhost"]


def test_deepspeeds_launcher_keeps_to_the_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slots(monkeypatch, None, 2) == [0, 1]
    assert slots(monkeypatch, "2, 5,7", 2) == [2, 5]
    assert slots(monkeypatch, "GPU-8932f937,MIG-1a2b", 2) == ["GPU-8932f937", "MIG-1a2b"]
    with pytest.raises(ConfigError, match="has 1 devices"):
        slots(monkeypatch, "3", 2)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_batch_script_is_valid_shell_whatever_the_folder_is_called() -> None:
    script = LAUNCHERS["slurm"]().render(job("slurm"))
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert "cd '/shared/my runs/electra'" in script


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"launcher": "slurm"}, "must be told how many"),
        ({"launcher": "local", "num_nodes": 2, "num_processes": 2}, "for one node"),
        ({"launcher": "torchrun", "num_nodes": 2, "num_processes": 3}, "does not split over"),
        ({"launcher": "deepspeed", "num_nodes": 2, "num_processes": 2}, "needs deepspeed.hostfile for several nodes"),
        ({"launcher": "kubernetes", "num_processes": 2}, "needs kubernetes.image"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(
    prepared: Workspace, tmp_path: Path, cluster: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Workspace(tmp_path).write({"cluster": cluster}).settings()


def test_a_batch_that_does_not_split_over_the_processes_is_refused_before_a_job_waits_in_the_queue(
    workspace: Workspace,
) -> None:
    workspace.write({"cluster": {"launcher": "slurm", "num_processes": 3}})  # a batch of 8
    with pytest.raises(ConfigError, match="global batch of 8 does not split into 3 processes"):
        render_pretraining(workspace.settings(), workspace.paths)


def test_render_shows_the_script_and_submits_nothing(workspace: Workspace) -> None:
    workspace.write({"cluster": {"launcher": "slurm", "num_processes": 2}})
    shown = render_pretraining(workspace.settings(), workspace.paths)
    assert "#SBATCH --ntasks-per-node=2" in shown
    assert not (workspace.root / "logs/pretrain/job").exists()
