"""What a launcher is asked to run, and the one interface all of them have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from electra.config import Cluster
from electra.errors import ConfigError, DataError, ElectraError, InfrastructureError, TrainingError

COMMAND = ("-m", "electra", "pretrain")  # of this very Python, in the workspace
IN_JOB = "ELECTRA_JOB"  # environment of a process inside a job: it joins the others instead of submitting again


@dataclass(frozen=True)
class Job:
    """One pre-training to be run.

    Args:
        fingerprint: of its settings, data and tokenizer: the name of its checkpoints.
        root: the workspace, which all nodes share.
        cluster: the machine's settings.
        num_processes: of all nodes together.
    """

    fingerprint: str
    root: Path
    cluster: Cluster
    num_processes: int

    @property
    def name(self) -> str:
        """What queues show."""
        return f"electra-pretrain-{self.fingerprint}"

    @property
    def processes_per_node(self) -> int:
        return self.num_processes // self.cluster.num_nodes

    @property
    def gpus_per_node(self) -> int:
        """To ask a queue for: one per process, unless the run is on the CPU."""
        return 0 if self.cluster.device == "cpu" else self.processes_per_node

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints" / self.fingerprint

    @property
    def folder(self) -> Path:
        """Scripts and output of what was submitted."""
        return self.root / "logs/pretrain/job"

    @property
    def progress_file(self) -> Path:
        return self.root / "logs/pretrain/progress.json"

    def newest_step(self) -> int:
        """Of the run's checkpoints, as a measure of how far it got; 0 without one."""
        try:
            return int((self.checkpoints / "latest").read_text().strip().removeprefix("step_"))
        except (OSError, ValueError):
            return 0


class Launcher(Protocol):
    """Starts pre-training somewhere and waits for its end."""

    def render(self, job: Job) -> str:
        """What :meth:`run` would start or submit: a command line, a script, manifests."""
        ...

    def run(self, job: Job) -> None:
        """Start or submit, wait, pass the output on; end everything when this process is told to end.

        Raises:
            ElectraError: training ended otherwise than well; its class is that of the process that failed first.
        """
        ...


def error_of_code(exit_code: int) -> type[ElectraError]:
    """The kind of failure that a process' exit code stands for; signals and unknown codes are infrastructure's."""
    by_code: dict[int, type[ElectraError]] = {
        error.exit_code: error for error in (ConfigError, DataError, TrainingError)
    }
    return by_code.get(exit_code, InfrastructureError)
