"""``launcher: kubernetes`` with a fake ``kubectl`` that prints files and records its arguments."""

import json
from pathlib import Path
from typing import Any

import pytest

from electra.cluster.launchers import kubernetes as module
from electra.cluster.launchers.job import Job, Status, run_to_end
from electra.cluster.launchers.kubernetes import KubernetesLauncher
from electra.common.errors import ConfigError, InfrastructureError
from electra.config import Cluster

KUBECTL = """\
#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in
  *"get job"*) cat {folder}/job 2>/dev/null || {{ echo 'Error from server (NotFound): jobs not found' >&2; exit 1; }} ;;
  *"get pods"*) cat {folder}/pods ;;
  *logs*job-completion-index=0*--tail=-1*) echo 'all words of the first pod' ;;
  *"logs b --tail=50"*) printf '\\351 no such file: data/shards\\n'; echo 'some lines are lost' >&2 ;;
  *apply*) cat > {folder}/applied; test ! -f {folder}/refuse || {{ echo 'admission webhook denied' >&2; exit 1; }} ;;
esac
"""
NAME = "electra-pretrain-0123456789ab"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the fake ``kubectl``; return the folder of its outputs."""
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    settings = {"image": "i", "volume_claim": "c", "namespace": "nlp", "context": "lab"}
    cluster = {"launcher": "kubernetes", "num_nodes": 2, "num_processes": 2, "kubernetes": settings}
    return Job("0123456789ab", tmp_path, Cluster.model_validate(cluster), 2)


def answer(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value))


def condition(kind: str, **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True", **more}]}}


def ended(name: str, code: int, at: str, **status: Any) -> dict[str, Any]:
    container = {"state": {"terminated": {"exitCode": code, "finishedAt": at}}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [container], **status}}


def not_started(name: str, reason: str, message: str) -> dict[str, Any]:
    waiting = {"state": {"waiting": {"reason": reason, "message": message}}}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [waiting]}}


def test_manifests_are_applied_in_the_place_of_an_earlier_job(kubectl: Path, job: Job) -> None:
    assert KubernetesLauncher().submit(job) == NAME
    delete, apply = (kubectl / "asked").read_text().splitlines()
    assert delete.startswith(f"--namespace=nlp --context=lab delete job/{NAME} service/{NAME} --ignore-not-found")
    assert apply.endswith("apply --filename -")
    assert (kubectl / "applied").read_text() == KubernetesLauncher().render(job)


def test_job_that_is_refused_ends_with_the_clusters_words(kubectl: Path, job: Job) -> None:
    (kubectl / "refuse").touch()
    with pytest.raises(InfrastructureError, match="admission webhook denied"):
        KubernetesLauncher().submit(job)


@pytest.mark.parametrize(
    ("told", "phase"),
    [
        ({"status": {}}, "waiting"),
        ({"status": {"active": 2, "ready": 1}}, "waiting"),
        (condition("Suspended"), "waiting"),
        ({"status": {"active": 2, "ready": 2}}, "running"),
        (condition("Complete"), "succeeded"),
    ],
)
def test_phase_of_a_job(kubectl: Path, job: Job, told: dict[str, Any], phase: str) -> None:
    answer(kubectl, "job", told)
    assert KubernetesLauncher().status(job, NAME).phase == phase


def test_what_pods_wait_for_is_told_once_for_all_of_them(kubectl: Path, job: Job) -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    scheduled = {"type": "PodScheduled", "status": "True"}
    answer(kubectl, "job", {"status": {"active": 2, "ready": 0}})
    for conditions, what in (
        (unscheduled, "Unschedulable: 0/3 nodes fit; ContainerCreating"),
        (scheduled, "ContainerCreating"),
    ):
        pods = [{"metadata": {"name": name}, "status": {"conditions": [conditions]}} for name in "ab"]
        answer(kubectl, "pods", {"items": [*pods, not_started("c", "ContainerCreating", "")]})
        status = KubernetesLauncher().status(job, NAME)
        assert (status.phase, status.what) == ("waiting", what)


def test_image_that_can_never_be_used_ends_the_wait_and_removes_the_job(kubectl: Path, job: Job) -> None:
    answer(kubectl, "job", {"status": {"active": 2, "ready": 0}})
    answer(kubectl, "pods", {"items": [not_started("a", "InvalidImageName", 'couldn\'t parse "i:"')]})
    with pytest.raises(ConfigError, match='InvalidImageName: couldn\'t parse "i:"') as raised:
        run_to_end(KubernetesLauncher(), job)
    assert raised.value.where == "cluster.kubernetes.image"
    last = (kubectl / "asked").read_text().splitlines()[-1]
    assert f"delete job/{NAME}" in last, "its pods would go on to wait"
    assert not (job.checkpoints / "job.json").exists()


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("ErrImagePull", "cluster.kubernetes.image"),
        ("ImagePullBackOff", "cluster.kubernetes.image"),
        ("CreateContainerConfigError", "cluster.kubernetes"),
    ],
)
def test_reason_that_may_pass_is_waited_for_some_minutes(
    kubectl: Path, job: Job, monkeypatch: pytest.MonkeyPatch, reason: str, setting: str
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    answer(kubectl, "job", {"status": {"active": 2, "ready": 0}})
    launcher, stuck = KubernetesLauncher(), {"items": [not_started("a", reason, "not found")]}
    for now, pods, phase in (
        (1000.0, stuck, "waiting"),
        (1200.0, {"items": []}, "waiting"),
        (1400.0, stuck, "waiting"),  # it has begun anew
        (1690.0, stuck, "waiting"),
        (1710.0, stuck, "failed"),
    ):
        answer(kubectl, "pods", pods)
        status = launcher.status(job, NAME)
        assert status.phase == phase, now
    assert (status.what, status.exit_code, status.wrong_setting) == (f"{reason}: not found", 2, setting)


def test_exit_code_is_that_of_the_pod_that_failed_first(kubectl: Path, job: Job) -> None:
    answer(kubectl, "job", condition("Failed", message="Job has reached the specified backoff limit"))
    pods = [ended("a", 5, "2026-01-01T00:00:09Z"), ended("b", 4, "2026-01-01T00:00:01Z")]
    answer(kubectl, "pods", {"items": pods})
    status = KubernetesLauncher().status(job, NAME)
    assert (status.phase, status.exit_code, status.is_clusters_doing) == ("failed", 4, False)


@pytest.mark.parametrize(
    "of_pod",
    [{"reason": "Evicted"}, {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}],
    ids=["evicted", "preempted"],
)
def test_pod_that_the_cluster_took_away_is_the_clusters_doing(kubectl: Path, job: Job, of_pod: dict[str, Any]) -> None:
    answer(kubectl, "job", condition("Failed"))
    answer(kubectl, "pods", {"items": [ended("a", 137, "2026-01-01T00:00:01Z", **of_pod)]})
    assert KubernetesLauncher().status(job, NAME).is_clusters_doing


def test_job_that_is_deleted_is_gone_and_counts_as_cancelled(kubectl: Path, job: Job) -> None:
    status = KubernetesLauncher().status(job, NAME)
    assert status.phase == "gone" and status.is_cancelled


def test_cancelling_gives_pods_their_grace_period(kubectl: Path, job: Job) -> None:
    KubernetesLauncher().end(job, NAME)
    (asked,) = (kubectl / "asked").read_text().splitlines()
    assert f"delete job {NAME}" in asked and "--cascade=foreground" in asked and "--grace-period" not in asked


def test_output_is_all_of_the_first_pod(kubectl: Path, job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    output = KubernetesLauncher().output(job, NAME)
    output.pass_on(Status("waiting"))
    assert not (kubectl / "asked").exists(), "there is no output yet"
    output.pass_on(Status("running"))
    output.close()
    assert capfd.readouterr().out == "all words of the first pod\n"
    (asked,) = (kubectl / "asked").read_text().splitlines()
    assert f"--selector=job-name={NAME},batch.kubernetes.io/job-completion-index=0 --follow" in asked


def test_words_of_the_pod_that_failed_before_all_were_ready_are_printed(
    kubectl: Path, job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    pods = [ended("a", 5, "2026-01-01T00:00:09Z"), ended("b", 3, "2026-01-01T00:00:01Z")]
    answer(kubectl, "pods", {"items": pods})
    output = KubernetesLauncher().output(job, NAME)
    output.pass_on(Status("failed"))
    output.close()
    printed = capfd.readouterr().out
    assert printed == "the end of the output of pod b:\n\ufffd no such file: data/shards\nsome lines are lost\n"

    output = KubernetesLauncher().output(job, NAME)
    output.pass_on(Status("running"))
    output.pass_on(Status("failed"))
    output.close()
    assert capfd.readouterr().out == "all words of the first pod\n", "they were followed: nothing is printed twice"
