"""Instrumented pre-training run of a few steps: time per step, time waiting for data, communicated bytes.

    python -m benchmarks.training_run WORKSPACE RESULT.json            # one process, or each of torchrun's

The run is ``electra.pretrain.run.pretrain`` with two wrappers: around the loader (a step ends when the next one is
requested) and around torch.distributed's collectives (bytes that a process passes in or gets back, whichever is more).
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COLLECTIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
)


class Watch:
    """Measurements of a run per step: wall-clock and processor seconds, waiting for data, bytes by collective."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.processor: list[float] = []
        self.waits: list[float] = []
        self.bytes: list[dict[str, int]] = []
        self.is_stepping = False

    def loader(self, training_steps: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Wrap the loader with a clock: the time between two of its batches is one step of the run."""

        def timed(*arguments: Any, **options: Any) -> Iterator[Any]:
            steps = training_steps(*arguments, **options)
            while True:
                begin, used = time.perf_counter(), time.process_time()
                batches = next(steps, None)
                if batches is None:
                    return
                ready = time.perf_counter()
                self.bytes.append({})
                self.is_stepping = True
                yield batches
                self.is_stepping = False
                self.waits.append(ready - begin)
                self.steps.append(time.perf_counter() - begin)
                self.processor.append(time.process_time() - used)

        return timed

    def collective(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self.is_stepping:
                given = [*arguments, *options.values()]
                self.bytes[-1][name] = self.bytes[-1].get(name, 0) + max(map(_bytes, given), default=0)
            return call(*arguments, **options)

        return counted


def _bytes(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    return value.numel() * value.element_size() if hasattr(value, "element_size") else 0


def main() -> None:
    workspace, result = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    os.chdir(workspace)
    import torch
    import torch.distributed

    watch = Watch()
    for name in COLLECTIVES:  # before DeepSpeed imports them
        setattr(torch.distributed, name, watch.collective(name, getattr(torch.distributed, name)))
    from electra.common.artifacts import write_json
    from electra.common.paths import Paths
    from electra.config.loading import load_settings
    from electra.pretrain import run

    run.training_steps = watch.loader(run.training_steps)
    # when it logs, a run computes the norm of all gradients; a run this short would log every step
    run.gradient_norms = lambda *_: {}
    rank = int(os.environ.get("RANK", "0"))
    run.pretrain(load_settings(), Paths())
    memory = {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if torch.cuda.is_available():
        memory["peak_cuda_bytes"] = torch.cuda.max_memory_allocated()
    write_json(
        result.with_name(f"{result.stem}.{rank}.json"),
        {"steps": watch.steps, "processor": watch.processor, "waits": watch.waits, "bytes": watch.bytes, **memory},
    )


def watched_run(workspace: Path, num_processes: int) -> list[dict[str, Any]]:
    """Run the workspace's pre-training in new processes; return the measurements of each.

    Raises:
        RuntimeError: the run failed; contains its last lines.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    from electra.cluster.hardware import resolve_machine
    from electra.config.loading import load_settings

    settings = load_settings(workspace)
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    done = subprocess.run(
        [
            sys.executable,
            *(launcher if num_processes > 1 else []),
            "-m",
            "benchmarks.training_run",
            str(workspace),
            str(workspace / "watched.json"),
        ],
        env={**os.environ, "OMP_NUM_THREADS": str(machine.num_threads), "OMP_WAIT_POLICY": "passive"},
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the run ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return [json.loads((workspace / f"watched.{rank}.json").read_text()) for rank in range(num_processes)]


if __name__ == "__main__":
    main()
