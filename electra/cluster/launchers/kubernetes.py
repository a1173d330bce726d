"""Pre-training as a Kubernetes Indexed Job with one pod per node; pods find the first one through a headless Service.

Plain Kubernetes without an operator: https://kubernetes.io/docs/concepts/workloads/controllers/job/ (completion modes;
a headless Service provides stable host names).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import yaml

from electra.cluster.launchers.job import COMMAND, IN_JOB, Job, Status, run_to_end
from electra.common.errors import ConfigError, InfrastructureError

_PORT = 29500
_LABELS = {"app.kubernetes.io/name": "electra-pretrain"}
_INDEX = "batch.kubernetes.io/job-completion-index"
_CLUSTERS_DOING = {"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "DeadlineExceeded"}

# Reasons of a container that does not start. Time changes nothing about the first two; the others may be an outage of a
# registry or a Secret that comes late, and are waited for.
_NEVER_PASSES = {"InvalidImageName", "ErrImageNeverPull"}
_SELDOM_PASSES = {"ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"}
_PATIENCE_SECONDS = 300.0

_LINES_OF_A_FAILURE = 50


class KubernetesLauncher:
    """Launcher and queue for Kubernetes, through ``kubectl``."""

    kind = "kubernetes"

    def __init__(self) -> None:
        self._stuck_since: float | None = None  # since then a container does not start for one of _SELDOM_PASSES

    def render(self, job: Job) -> str:
        """Return Service and Job as YAML documents."""
        return yaml.safe_dump_all([self._service(job), self._job(job)], sort_keys=False)

    def _service(self, job: Job) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(job),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,  # pods must find each other before they are ready
                "selector": {"job-name": job.name},
                "ports": [{"name": "rendezvous", "port": _PORT}],
            },
        }

    def _job(self, job: Job) -> dict[str, Any]:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(job),
            "spec": {
                "completionMode": "Indexed",
                "completions": job.cluster.num_nodes,
                "parallelism": job.cluster.num_nodes,
                "backoffLimit": 0,  # run_to_end decides whether to submit the job again
                "ttlSecondsAfterFinished": 86400,
                "template": {"metadata": {"labels": _LABELS}, "spec": self._pod(job)},
            },
        }

    def _pod(self, job: Job) -> dict[str, Any]:
        settings = job.cluster.kubernetes
        return {
            "subdomain": job.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": job.cluster.grace_seconds,
            **({"serviceAccountName": settings.service_account} if settings.service_account else {}),
            **({"nodeSelector": settings.node_selector} if settings.node_selector else {}),
            **({"tolerations": settings.tolerations} if settings.tolerations else {}),
            "containers": [self._container(job)],
            "volumes": [
                {"name": "workspace", "persistentVolumeClaim": {"claimName": settings.volume_claim}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}},
            ],
        }

    def _container(self, job: Job) -> dict[str, Any]:
        settings = job.cluster.kubernetes
        resources: dict[str, Any] = {"cpu": settings.cpus, "memory": settings.memory}
        resources = {name: amount for name, amount in resources.items() if amount}
        if job.gpus_per_node:
            resources[settings.gpu_resource] = str(job.gpus_per_node)
        resources.update(settings.resources)
        security: dict[str, Any] = {"allowPrivilegeEscalation": False}
        if settings.capabilities:
            security["capabilities"] = {"add": settings.capabilities}
        mount = {"name": "workspace", "mountPath": settings.workspace}
        if settings.sub_path:
            mount["subPath"] = settings.sub_path
        return {
            "name": "pretrain",
            "image": settings.image,
            "command": ["python", *COMMAND],
            "workingDir": settings.workspace,
            "env": [
                {"name": IN_JOB, "value": "kubernetes"},
                {"name": "PYTHONUNBUFFERED", "value": "1"},
                {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{_INDEX}']"}}},
                {"name": "RENDEZVOUS", "value": f"{job.name}-0.{job.name}:{_PORT}"},
                *({"name": name, "value": value} for name, value in settings.environment.items()),
            ],
            **({"envFrom": [{"secretRef": {"name": settings.secret}}]} if settings.secret else {}),
            "resources": {"requests": resources, "limits": dict(resources)},
            "securityContext": security,
            "volumeMounts": [mount, {"name": "shared-memory", "mountPath": "/dev/shm"}],
        }

    def _metadata(self, job: Job) -> dict[str, Any]:
        settings = job.cluster.kubernetes
        return {"name": job.name, "namespace": settings.namespace, "labels": {**_LABELS, **settings.labels}}

    def run(self, job: Job) -> None:
        run_to_end(self, job)

    def submit(self, job: Job) -> str:
        self._stuck_since = None
        self.kill(job, job.name)  # delete an earlier run's Job, which cannot be changed
        answer = self._kubectl(job, "apply", "--filename", "-", input=self.render(job))
        if answer.returncode:
            raise InfrastructureError(f"kubectl cannot create the job: {answer.stderr.strip()}")
        return job.name

    def status(self, job: Job, name: str) -> Status:
        answer = self._kubectl(job, "get", "job", name, "--output", "json")
        if answer.returncode:
            # an ended Job stays for a day (ttlSecondsAfterFinished): one that is not there was deleted
            is_deleted = "NotFound" in answer.stderr
            return Status("gone" if is_deleted else "unknown", answer.stderr.strip(), is_cancelled=is_deleted)
        status = json.loads(answer.stdout).get("status", {})
        conditions = {c["type"]: c for c in status.get("conditions", []) if c["status"] == "True"}
        if "Complete" in conditions:
            return Status("succeeded", "Complete")
        if "Failed" in conditions:
            return self._failure(job, name, conditions["Failed"].get("message", "failed"))
        if status.get("ready", 0) == job.cluster.num_nodes:
            return Status("running")
        return Status("waiting", "suspended") if "Suspended" in conditions else self._not_ready(job, name)

    def _not_ready(self, job: Job, name: str) -> Status:
        """Return what the pods wait for; it is a failure where waiting does not help."""
        obstacles = [found for pod in self._pods(job, name) for found in _obstacles(pod.get("status", {}))]
        what = "; ".join(dict.fromkeys(f"{reason}: {message}".strip(": ") for reason, message in obstacles))
        stuck = {reason for reason, _ in obstacles} & (_NEVER_PASSES | _SELDOM_PASSES)
        if not stuck:
            self._stuck_since = None
            return Status("waiting", what or "pods are not ready")
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        if not stuck & _NEVER_PASSES and now - self._stuck_since < _PATIENCE_SECONDS:
            return Status("waiting", what)
        setting = "cluster.kubernetes" if stuck == {"CreateContainerConfigError"} else "cluster.kubernetes.image"
        return Status("failed", what, ConfigError.exit_code, wrong_setting=setting)

    def _pods(self, job: Job, name: str) -> list[dict[str, Any]]:
        answer = self._kubectl(job, "get", "pods", "--selector", f"job-name={name}", "--output", "json")
        return json.loads(answer.stdout)["items"] if answer.returncode == 0 else []

    def _failure(self, job: Job, name: str, message: str) -> Status:
        """Return the failure of the pod that failed first; the others end because of it."""
        pods = self._pods(job, name)
        for pod in pods:
            status = pod.get("status", {})
            disrupted = any(
                c["type"] == "DisruptionTarget" and c["status"] == "True" for c in status.get("conditions", [])
            )
            if disrupted or status.get("reason") in _CLUSTERS_DOING:
                return Status("failed", f"pod {pod['metadata']['name']}: {status.get('reason', 'disrupted')}", 5, True)
        if not (first := _first_to_fail(pods)):
            return Status("failed", message)
        _, code = first
        return Status("failed", f"{message}; exit code {code}", code)

    def _failed_log(self, job: Job, name: str) -> str:
        """Return the last lines of the pod that failed first, with kubectl's words if it cannot read them."""
        if not (first := _first_to_fail(self._pods(job, name))):
            return ""
        pod, _ = first
        answer = self._kubectl(job, "logs", pod, f"--tail={_LINES_OF_A_FAILURE}")
        return f"the end of the output of pod {pod}:\n{answer.stdout}{answer.stderr}"

    def output(self, job: Job, name: str) -> "PodLog":
        first = f"job-name={name},{_INDEX}=0"  # without the index kubectl takes any pod; by a selector only 10 lines
        follow = [*self._command(job), "logs", f"--selector={first}", "--follow", "--tail=-1", "--ignore-errors"]
        return PodLog(follow, lambda: self._failed_log(job, name))

    def end(self, job: Job, name: str) -> None:
        # pods get SIGTERM and the grace period; foreground deletion removes the Job only after its pods have ended
        self._kubectl(job, "delete", "job", name, "--ignore-not-found", "--cascade=foreground", "--wait=false")

    def kill(self, job: Job, name: str) -> None:
        both = (f"job/{name}", f"service/{name}")
        self._kubectl(job, "delete", *both, "--ignore-not-found", "--cascade=foreground", "--timeout=120s")

    def _command(self, job: Job) -> list[str]:
        settings = job.cluster.kubernetes
        return [
            "kubectl",
            f"--namespace={settings.namespace}",
            *([f"--context={settings.context}"] if settings.context else []),
        ]

    def _kubectl(self, job: Job, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [*self._command(job), *arguments],
                input=input,
                capture_output=True,
                text=True,
                errors="replace",  # a log may be cut anywhere
                timeout=300,
            )
        except FileNotFoundError:
            raise ConfigError(
                "there is no kubectl here", where="cluster.launcher", next_step="install it, or choose another launcher"
            ) from None
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(arguments, 1, "", "kubectl does not respond")


def _obstacles(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Return reason and message of what keeps a pod from running: it has no node, or a container does not start."""
    unscheduled = [c for c in status.get("conditions", []) if c["type"] == "PodScheduled" and c["status"] == "False"]
    states = [container.get("state", {}).get("waiting") for container in status.get("containerStatuses", [])]
    return [(told.get("reason", ""), told.get("message", "")) for told in [*unscheduled, *filter(None, states)]]


def _first_to_fail(pods: list[dict[str, Any]]) -> tuple[str, int] | None:
    """Return name and exit code of the pod that failed first, or None if none has."""
    ends: list[tuple[str, int, str]] = []
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            ended = container.get("state", {}).get("terminated")
            if ended and ended["exitCode"]:
                ends.append((ended.get("finishedAt") or "", ended["exitCode"], pod["metadata"]["name"]))
    if not ends:
        return None
    _, code, name = min(ends)
    return name, code


class PodLog:
    """Follower of the first pod's output, which reports progress, by ``kubectl logs``; restarted if that ends early.

    A job that fails before all of its pods run has not been followed: the output of the failed pod is printed.
    """

    def __init__(self, command: list[str], failed_log: Callable[[], str]):
        self.command, self.failed_log, self.child = command, failed_log, None

    child: subprocess.Popen | None

    def pass_on(self, status: Status) -> None:
        if status.phase == "running" and (self.child is None or self.child.poll() is not None):
            again = ["--tail=0"] if self.child else []
            self.child = subprocess.Popen([*self.command, *again], stdout=sys.stdout, stderr=subprocess.DEVNULL)
        elif status.phase == "failed" and self.child is None:
            print(self.failed_log(), end="", flush=True)

    def close(self) -> None:
        if self.child is None:
            return
        try:
            self.child.wait(10)  # it ends with the pod
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
