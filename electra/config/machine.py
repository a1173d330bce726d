"""Settings of the machine: section ``cluster``, with a subsection for each launcher."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from electra.common.errors import ConfigError
from electra.config.section import Section


class Torchrun(Section):
    """Launcher ``torchrun``: processes of this machine, which join those of other nodes if there are several."""

    endpoint: str = Field(
        "127.0.0.1:0", description="rendezvous endpoint host:port on one of the nodes; the same on every node"
    )


# Entries of DeepSpeed's configuration that the project decides, and the settings that decide them
DECIDED = {
    "train_batch_size": "pretrain.batch_size",
    "train_micro_batch_size_per_gpu": "cluster.micro_batch_size",
    "gradient_accumulation_steps": "pretrain.batch_size and cluster.micro_batch_size",
    "gradient_clipping": "pretrain.max_grad_norm",
    "optimizer": "section pretrain",
    "scheduler": "section pretrain",
    "zero_allow_untested_optimizer": "section pretrain",
    "zero_force_ds_cpu_optimizer": "cluster.offload",
    "fp16": "cluster.precision",
    "bf16": "cluster.precision",
    "amp": "cluster.precision",
    "torch_autocast": "cluster.precision",
    "data_types": "cluster.precision",
    "communication_data_type": "cluster.precision",
    "activation_checkpointing": "cluster.activation_checkpointing",
    "compile": "cluster.compile",
}
DECIDED_OF_ZERO = {
    "stage": "cluster.zero_stage",
    "offload_optimizer": "cluster.offload",
    "offload_param": "cluster.offload",
    "cpu_offload": "cluster.offload",
}
# Entries that a user may add: DeepSpeed ignores a top-level key that it does not know. wall_clock_breakdown and
# flops_profiler are none of them: the timers of DeepSpeed 0.19.8 end a run in its first backward pass.
OPEN = {
    "zero_optimization", "comms_logger", "memory_breakdown", "dump_state",
    "steps_per_print", "tensorboard", "wandb", "csv_monitor", "comet", "aio",
}  # fmt: skip


class DeepSpeed(Section):
    """DeepSpeed's configuration, and its launcher (``deepspeed``), which reaches other nodes by ssh."""

    hostfile: Path | None = Field(
        None, description="launcher deepspeed: lines such as `node1 slots=8`; none: this machine only"
    )
    config: dict[str, Any] = Field(
        {},
        description="entries added to DeepSpeed's configuration, such as {comms_logger: {enabled: true}}; "
        "`electra config --deepspeed` prints all of it",
    )

    @model_validator(mode="after")
    def _leaves_the_recipe_alone(self) -> "DeepSpeed":
        of_zero = self.config.get("zero_optimization", {})
        if not isinstance(of_zero, dict):
            raise ValueError("config.zero_optimization is a table of entries")
        for name, entries, decided in (
            ("", self.config, DECIDED),
            ("zero_optimization.", of_zero, DECIDED_OF_ZERO),
        ):
            for key in entries:
                if key in decided:
                    raise ValueError(f"config.{name}{key} is decided by {decided[key]}: set that instead")
        if unknown := sorted(self.config.keys() - OPEN):
            raise ValueError(f"config has no entry {unknown[0]}; there are {', '.join(sorted(OPEN))}")
        return self


class Slurm(Section):
    """Launcher ``slurm``: a batch job with one task per process."""

    partition: str | None = Field(None, description="Slurm partition; none: the default")
    account: str | None = Field(None, description="account that the job is charged to")
    qos: str | None = Field(None, description="quality of service")
    constraint: str | None = Field(None, description="node features that are required")
    time_limit_minutes: int = Field(
        1440, gt=0, le=1_000_000, description="time limit of one job; a longer run continues in the next job"
    )
    cpus_per_task: int | None = Field(
        None, gt=0, le=65_536, description="cores per process; none: 8 beside a GPU, else the cluster's default"
    )
    memory_gb: float | None = Field(None, gt=0, le=1_000_000, description="memory per node; none: the default")
    warning_seconds: int = Field(
        300, gt=0, le=1_000_000, description="seconds before the time limit to write a checkpoint and end the job"
    )
    setup: list[str] = Field([], description="shell lines before the command, such as `module load cuda`")
    options: dict[str, str | int | bool] = Field({}, description="further options of sbatch, such as {reservation: x}")


class Kubernetes(Section):
    """Launcher ``kubernetes``: an Indexed Job with one pod per node, and a headless Service for the rendezvous."""

    image: str = Field("", description="container image with this project installed")
    namespace: str = Field("default", description="namespace of the Job")
    context: str | None = Field(None, description="kubectl context; none: the current one")
    volume_claim: str = Field("", description="volume claim with this workspace; several nodes: ReadWriteMany")
    workspace: str = Field("/workspace", description="this workspace's folder inside the pods")
    sub_path: str | None = Field(None, description="path of this workspace in the volume; none: the volume's root")
    cpus: str | None = Field(None, description="CPUs per pod, such as `16`")
    memory: str | None = Field(None, description="memory per pod, such as `128Gi`")
    shared_memory: str = Field("8Gi", description="size of /dev/shm; it counts as memory")
    gpu_resource: str = Field("nvidia.com/gpu", description="resource name of the nodes' GPUs")
    service_account: str | None = Field(None, description="service account of the pods")
    resources: dict[str, str] = Field(
        {}, description="further resources per pod, such as {rdma/hca_shared_devices_a: '1'} for InfiniBand"
    )
    capabilities: list[str] = Field([], description="capabilities added to the container; RDMA needs [IPC_LOCK]")
    environment: dict[str, str] = Field(
        {}, description="environment variables of the pods, such as {NCCL_SOCKET_IFNAME: eth0}"
    )
    tolerations: list[dict[str, str | int]] = Field(
        [], description="tolerations of the pods, such as [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]"
    )
    node_selector: dict[str, str] = Field({}, description="labels that the nodes must have")
    labels: dict[str, str] = Field({}, description="labels of the Job, such as {kueue.x-k8s.io/queue-name: gpus}")
    secret: str | None = Field(
        None, description="Secret whose keys become environment variables, such as AWS_ACCESS_KEY_ID"
    )


Processes = Annotated[int, Field(ge=1, le=65_536)]


class Cluster(Section):
    """Settings of the machine; they affect speed, not the recipe, and no stage depends on them.

    Results are identical bit by bit or up to rounding: docs/architecture.md says which, for each setting.
    """

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda if there is a GPU")
    num_processes: Processes | Literal["auto"] = Field(
        "auto", description="training processes on all nodes together; auto: one per GPU, else 1"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="precision of matrix products; auto: bf16 if it is faster (GPUs, AMX, AMD's AVX-512)"
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage")
    offload: Literal["none", "optimizer", "parameters"] = Field(
        "none",
        description="what ZeRO-Offload keeps in the host's memory instead of the GPU's: the optimizer with its state "
        "(zero_stage 1 to 3), or the parameters as well (zero_stage 3)",
    )
    micro_batch_size: Annotated[int, Field(ge=1, le=1_048_576)] | Literal["auto"] = Field(
        "auto",
        description="examples per process and forward pass; auto: the whole share of the global batch, on CUDA the "
        "largest part of it that fits into 85% of the free memory",
    )
    activation_checkpointing: Literal["auto", "off", "layers"] | None = Field(
        None,
        description="layers: a layer keeps only its input and runs again in the backward pass, which saves memory and "
        "costs time; auto: if a step would not fit into free memory (docs/long-sequences.md); none: auto on CUDA, off "
        "on a CPU",
    )
    compile: Literal["auto", "off", "layers", "model"] = Field(
        "auto",
        description="compile with torch.compile the encoders' layers or the whole forward pass (model); auto: model on "
        "CUDA, off on a CPU and with ZeRO stage 3",
    )
    deterministic: bool = Field(
        False,
        description="on CUDA: only PyTorch's deterministic algorithms, in pre-training and fine-tuning; slower, and "
        "an operation without one ends the run (docs/gpu.md)",
    )
    pack_examples: bool = Field(
        False, description="pack several short examples into a row, with attention within each; saves padding"
    )
    cells_per_gpu: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        "auto",
        description="fine-tuning runs that share a GPU in a flow; auto: as many as are predicted to fit, 4 at most",
    )
    num_threads: Processes | Literal["auto"] = Field(
        "auto", description="threads per training process; auto: all cores"
    )
    share_cores: bool = Field(
        False,
        description="on a CPU, let `make run` run other stages during pre-training, each with a share of the cores: "
        "faster if pre-training takes minutes, slower if it takes hours",
    )
    executor: Literal["local", "dask"] = Field(
        "local", description="where text stages run: processes of this machine, or a Dask cluster (docs/scaling.md)"
    )
    dask_scheduler: str | None = Field(
        None, description="address such as tcp://host:8786 or tls://host:8786, for executor: dask"
    )
    num_workers: Processes | Literal["auto"] = Field(
        "auto", description="processes of the text stages on this machine; auto: all cores"
    )
    checkpoint_minutes: float = Field(5.0, gt=0, le=1_000_000, description="minutes between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, le=10_000, description="checkpoints kept while training")
    checkpoint_mirror: str | None = Field(
        None, description="fsspec URL that checkpoints are copied to, such as s3://bucket/checkpoints"
    )
    timeout_minutes: float = Field(
        30.0,
        gt=0,
        le=1_000_000,
        description="minutes without progress after which pre-training ends and names the process it waited for",
    )
    grace_seconds: int = Field(
        120, gt=0, le=1_000_000, description="seconds for a process to write its checkpoint after a signal to end"
    )
    silence_seconds: float = Field(
        60.0,
        gt=0,
        le=1_000_000,
        description="seconds without a heartbeat of another process after which pre-training ends and names it",
    )

    launcher: Literal["local", "torchrun", "deepspeed", "slurm", "kubernetes"] = Field(
        "local", description="launcher of the pre-training processes (docs/launchers.md)"
    )
    num_nodes: Processes = Field(1, description="machines of one pre-training run; num_processes counts all of them")
    resubmissions: int = Field(
        20, ge=0, le=10_000, description="resubmissions after a time limit or a lost node, while jobs make progress"
    )
    torchrun: Torchrun = Field(Torchrun(), description="settings of this launcher")
    deepspeed: DeepSpeed = Field(DeepSpeed(), description="DeepSpeed's configuration and its launcher")
    slurm: Slurm = Field(Slurm(), description="settings of this launcher")
    kubernetes: Kubernetes = Field(Kubernetes(), description="settings of this launcher")

    @model_validator(mode="after")
    def _launcher_has_what_it_needs(self) -> "Cluster":
        if self.num_processes != "auto" and self.num_processes % self.num_nodes:
            raise ValueError(f"num_processes {self.num_processes} does not split over num_nodes {self.num_nodes}")
        if self.compile in ("layers", "model") and self.zero_stage == 3:
            raise ValueError(f"compile: {self.compile} does not go with zero_stage 3, which swaps weights under it")
        if self.offload != "none" and self.zero_stage not in ((3,) if self.offload == "parameters" else (1, 2, 3)):
            stages = "3" if self.offload == "parameters" else "1, 2 or 3"
            raise ValueError(f"offload: {self.offload} needs zero_stage {stages}")
        if self.launcher == "local" and self.num_nodes > 1:
            raise ValueError("launcher local is for one node: choose torchrun, deepspeed, slurm or kubernetes")
        if self.launcher == "deepspeed" and self.num_nodes > 1 and self.deepspeed.hostfile is None:
            raise ValueError("launcher deepspeed needs deepspeed.hostfile for several nodes")
        if self.launcher in ("slurm", "kubernetes") and self.num_processes == "auto":
            raise ValueError(f"num_processes: launcher {self.launcher} must be told how many to ask for")
        if self.launcher == "kubernetes" and not (self.kubernetes.image and self.kubernetes.volume_claim):
            raise ValueError("launcher kubernetes needs kubernetes.image and kubernetes.volume_claim")
        return self

    def micro_batch(self, batch_size: int, num_processes: int) -> int:
        """Return the number of examples that a process computes at a time; ``auto`` is its whole share.

        Raises:
            ConfigError: the global batch does not split evenly.
        """
        if batch_size % num_processes:
            raise ConfigError(
                f"the global batch of {batch_size} does not split into {num_processes} processes",
                where="cluster.num_processes",
                next_step=f"choose a divisor of {batch_size}",
            )
        share = batch_size // num_processes
        if self.micro_batch_size == "auto":
            return share
        if share % self.micro_batch_size:
            raise ConfigError(
                f"the {share} examples of a process do not split into micro-batches of {self.micro_batch_size}",
                where="cluster.micro_batch_size",
                next_step=f"choose a divisor of {share}",
            )
        return self.micro_batch_size
