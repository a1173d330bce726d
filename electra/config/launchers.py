"""Settings of single launchers, all below ``cluster``."""

from pathlib import Path

from pydantic import Field

from electra.config.section import Section


class Torchrun(Section):
    """Launcher ``torchrun``: this machine's processes, joined to those of other nodes where there are several."""

    endpoint: str = Field(
        "127.0.0.1:0", description="host:port where the nodes of one run meet: the same on every node, one of them"
    )


class DeepSpeedLauncher(Section):
    """Launcher ``deepspeed``: DeepSpeed's own, which reaches other nodes by ssh."""

    hostfile: Path | None = Field(None, description="lines such as `node1 slots=8`; none: this machine only")


class Slurm(Section):
    """Launcher ``slurm``: a batch job with one task per process."""

    partition: str | None = Field(None, description="of the cluster; none: its default")
    account: str | None = Field(None, description="that the job is charged to")
    qos: str | None = Field(None, description="quality of service")
    constraint: str | None = Field(None, description="features that the nodes must have")
    time_limit_minutes: int = Field(1440, gt=0, description="of one job; what is left goes on in the next one")
    cpus_per_task: int | None = Field(None, gt=0, description="cores per process")
    memory_gb: float | None = Field(None, gt=0, description="per node; none: the cluster's default")
    warning_seconds: int = Field(
        300, gt=0, description="before the time limit: a checkpoint is written and the job ends"
    )
    setup: list[str] = Field([], description="shell lines before the command, such as `module load cuda`")
    options: dict[str, str | int | bool] = Field({}, description="further options of sbatch, such as {reservation: x}")


class Kubernetes(Section):
    """Launcher ``kubernetes``: an Indexed Job with one pod per node, and the headless Service they meet at."""

    image: str = Field("", description="with this project and its environment installed")
    namespace: str = Field("default", description="where the Job is created")
    context: str | None = Field(None, description="of kubectl's configuration; none: the current one")
    volume_claim: str = Field("", description="that holds this workspace; several nodes: ReadWriteMany")
    workspace: str = Field("/workspace", description="this workspace's folder inside the pods")
    sub_path: str | None = Field(None, description="of the volume that is this workspace; none: the whole volume")
    cpus: str | None = Field(None, description="per pod, such as `16`")
    memory: str | None = Field(None, description="per pod, such as `128Gi`")
    shared_memory: str = Field("8Gi", description="size of /dev/shm; it counts as memory")
    gpu_resource: str = Field("nvidia.com/gpu", description="name under which the nodes offer their GPUs")
    service_account: str | None = Field(None, description="of the pods")
    node_selector: dict[str, str] = Field({}, description="labels that the nodes must have")
    labels: dict[str, str] = Field({}, description="of the Job, such as {kueue.x-k8s.io/queue-name: gpus}")
    secret: str | None = Field(None, description="whose keys become environment variables, such as AWS_ACCESS_KEY_ID")
