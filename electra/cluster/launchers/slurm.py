"""Pre-training as a Slurm batch job with one task per process; submitit renders the script."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from electra.cluster.launchers.job import COMMAND, IN_JOB, Job, Status, run_to_end
from electra.common.artifacts import write_text
from electra.common.errors import ConfigError, InfrastructureError

# States of `scontrol show job`: https://slurm.schedmd.com/job_state_codes.html
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "STOPPED"}
_RUNNING = {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"}
_CLUSTERS_DOING = {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "DEADLINE", "LAUNCH_FAILED"}
CORES_BESIDE_A_GPU = 8  # for the loader, the compiler's workers and NCCL; Slurm's default is one core
FIRST_FAILURE = "first-failure"  # file with the exit code of the task that fails first; srun reports the highest code


class SlurmLauncher:
    """Launcher and queue for Slurm."""

    kind = "slurm"

    def render(self, job: Job) -> str:
        """Return the batch script.

        Raises:
            ConfigError: submitit is not installed.
        """
        try:
            from submitit.slurm import slurm as submitit_slurm
        except ImportError:
            raise ConfigError(
                "launcher slurm renders its script with submitit, which is not installed",
                next_step="pip install 'electra-pipeline[slurm]'",
            ) from None
        settings = job.cluster.slurm
        cores = settings.cpus_per_task or (CORES_BESIDE_A_GPU if job.gpus_per_node else None)
        options: dict[str, Any] = {
            "partition": settings.partition,
            "account": settings.account,
            "qos": settings.qos,
            "constraint": settings.constraint,
            "cpus_per_task": cores,
            "gpus_per_node": job.gpus_per_node or None,
            "mem": f"{round(settings.memory_gb * 1024)}MB" if settings.memory_gb else None,
        }
        srun = ["srun", "--unbuffered", "--kill-on-bad-exit=1", *(["--label"] if job.num_processes > 1 else [])]
        if cores:
            srun.append(f"--cpus-per-task={cores}")  # since 22.05 srun does not inherit it from sbatch
        script = submitit_slurm._make_sbatch_string(
            command=shlex.join([*srun, sys.executable, *COMMAND]),
            folder=job.folder,
            job_name=job.name,
            nodes=job.cluster.num_nodes,
            ntasks_per_node=job.processes_per_node,
            time=settings.time_limit_minutes,
            setup=[*settings.setup, *self._setup(job)],
            use_srun=False,  # submitit's srun line would write one file per task; a single file can be followed
            stderr_to_stdout=True,
            wckey=None,  # type: ignore[arg-type]  # no wckey instead of submitit's default
            additional_parameters={
                "output": str(job.folder / "%j.out"),
                # sent to the tasks, not to the script: they write a checkpoint before the time limit
                "signal": f"USR1@{settings.warning_seconds}",
                "requeue": True,
                **settings.options,
            },
            **options,
        )
        return script.rstrip() + "\n"

    def _setup(self, job: Job) -> list[str]:
        first_failure = shlex.quote(str(job.folder / FIRST_FAILURE))
        return [
            f"cd {shlex.quote(str(job.root))}",
            f"export {IN_JOB}=slurm PYTHONUNBUFFERED=1",
            'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            "export MASTER_PORT=$((15000 + SLURM_JOB_ID % 15000))",
            f"rm -f {first_failure}",
        ]

    def run(self, job: Job) -> None:
        run_to_end(self, job)

    def submit(self, job: Job) -> str:
        script = job.folder / "job.sh"
        write_text(script, self.render(job))
        answer = _slurm("sbatch", "--parsable", str(script))
        if answer.returncode:
            raise InfrastructureError(f"sbatch refuses the job: {answer.stderr.strip()}", where=str(script))
        return answer.stdout.strip().split(";")[0]

    def status(self, job: Job, name: str) -> Status:
        answer = _slurm("scontrol", "--oneliner", "show", "job", name)
        if answer.returncode:
            is_forgotten = "Invalid job id" in answer.stderr
            return Status("gone" if is_forgotten else "unknown", answer.stderr.strip())
        return self._status(job, dict(re.findall(r"(\w+)=(\S*)", answer.stdout)))

    def _status(self, job: Job, fields: dict[str, str]) -> Status:
        state, reason = fields["JobState"], fields.get("Reason", "")
        if state in _WAITING:
            return Status("waiting", f"{state}, {reason}")
        if state in _RUNNING:
            return Status("running", state)
        if state == "COMPLETED":
            return Status("succeeded", state)
        code = self._first_failure(job) or int(fields.get("ExitCode", "0:0").split(":")[0])
        return Status("failed", f"{state}, exit code {code}", code, state in _CLUSTERS_DOING, state == "CANCELLED")

    def _first_failure(self, job: Job) -> int | None:
        try:
            return int((job.folder / FIRST_FAILURE).read_text())
        except (OSError, ValueError):
            return None

    def output(self, job: Job, name: str) -> "TailedFile":
        return TailedFile(job.folder / f"{name}.out")

    def end(self, job: Job, name: str) -> None:
        # without --full the signal goes only to the tasks: the script must wait for them and return their exit code
        answer = _slurm("scancel", "--signal=TERM", name)
        if answer.returncode or self.status(job, name).phase == "waiting":
            self.kill(job, name)

    def kill(self, job: Job, name: str) -> None:
        _slurm("scancel", name)


class TailedFile:
    """Follower of a growing file; prints what is appended to it."""

    def __init__(self, path: Path):
        self.path, self.position = path, path.stat().st_size if path.exists() else 0

    def pass_on(self, status: Status) -> None:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                file.seek(self.position)
                text = file.read()
                self.position = file.tell()
        except FileNotFoundError:
            return
        print(text, end="", flush=True)

    def close(self) -> None:
        self.pass_on(Status("gone"))


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=_environment())
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {command[0]} here", where="cluster.launcher", next_step="run on a node that can submit jobs"
        ) from None
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} does not respond")


def _environment() -> dict[str, str]:
    """Return the environment without the SLURM_ variables of an enclosing job, which would override the new job's.

    Such a job is an interactive allocation, or that of a Prefect worker.
    """
    kept = ("SLURM_CONF", "SLURM_CLUSTERS")
    return {key: value for key, value in os.environ.items() if key in kept or not key.startswith("SLURM_")}
