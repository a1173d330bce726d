"""Settings of the machine: speed, never results."""

from typing import Literal

from pydantic import Field, model_validator

from electra.config.launchers import DeepSpeedLauncher, Kubernetes, Slurm, Torchrun
from electra.config.section import Section


class Cluster(Section):
    """The machine. Changes speed, never results; no stage depends on it."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where there is one")
    num_processes: int | Literal["auto"] = Field(
        "auto", description="training processes, of all nodes together; auto: one per GPU, else 1"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="matrix products; auto: bf16 where the machine has matrix units for it"
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage")
    micro_batch_size: int | Literal["auto"] = Field(
        "auto", description="examples per process and forward pass; auto: the whole share of the global batch"
    )
    activation_checkpointing: Literal["auto", "off", "layers"] = Field(
        "off",
        description="layers: a layer keeps its input alone and runs again in the backward pass, for memory against "
        "time; auto: where a step would not fit into the memory that is free (docs/long-sequences.md)",
    )
    compile: Literal["auto", "off", "layers"] = Field(
        "auto", description="layers: the encoders' layers through torch.compile; auto: on CUDA, not with ZeRO stage 3"
    )
    pack_examples: bool = Field(
        False, description="several short examples in a row, with attention within each: saves computing on padding"
    )
    num_threads: int | Literal["auto"] = Field("auto", description="threads per training process; auto: all cores")
    executor: Literal["local", "dask"] = Field(
        "local", description="who does the text stages: processes of this machine, or a Dask cluster (docs/scaling.md)"
    )
    dask_scheduler: str | None = Field(
        None, description="address such as tcp://host:8786 or tls://host:8786, for executor: dask"
    )
    num_workers: int | Literal["auto"] = Field(
        "auto", description="processes of the text stages on this machine; auto: all cores"
    )
    checkpoint_minutes: float = Field(5.0, gt=0, description="minutes between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="checkpoints kept while training")
    checkpoint_mirror: str | None = Field(
        None, description="fsspec URL that checkpoints are copied to, such as s3://bucket/checkpoints"
    )
    timeout_minutes: float = Field(
        30.0, gt=0, description="without progress after which pre-training ends and names the process it waited for"
    )
    grace_seconds: int = Field(120, gt=0, description="a process gets to write its checkpoint, after a signal to end")

    launcher: Literal["local", "torchrun", "deepspeed", "slurm", "kubernetes"] = Field(
        "local", description="what starts the processes of pre-training (docs/launchers.md)"
    )
    num_nodes: int = Field(1, ge=1, description="machines of one pre-training; num_processes is of all together")
    resubmissions: int = Field(
        20, ge=0, description="of a job that met its time limit or lost a node, as long as each got further"
    )
    torchrun: Torchrun = Field(Torchrun(), description="settings of this launcher")
    deepspeed: DeepSpeedLauncher = Field(DeepSpeedLauncher(), description="settings of this launcher")
    slurm: Slurm = Field(Slurm(), description="settings of this launcher")
    kubernetes: Kubernetes = Field(Kubernetes(), description="settings of this launcher")

    @model_validator(mode="after")
    def _launcher_has_what_it_needs(self) -> "Cluster":
        if self.num_processes != "auto" and self.num_processes % self.num_nodes:
            raise ValueError(f"num_processes {self.num_processes} does not split over num_nodes {self.num_nodes}")
        if self.compile == "layers" and self.zero_stage == 3:
            raise ValueError("compile: layers does not go with zero_stage 3, which swaps weights under the layers")
        if self.launcher == "local" and self.num_nodes > 1:
            raise ValueError("launcher local is for one node: choose torchrun, deepspeed, slurm or kubernetes")
        if self.launcher in ("slurm", "kubernetes") and self.num_processes == "auto":
            raise ValueError(f"num_processes: launcher {self.launcher} must be told how many to ask for")
        if self.launcher == "kubernetes" and not (self.kubernetes.image and self.kubernetes.volume_claim):
            raise ValueError("launcher kubernetes needs kubernetes.image and kubernetes.volume_claim")
        return self
