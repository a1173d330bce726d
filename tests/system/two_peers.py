"""One of two gloo processes that add numbers step by step; the second one fails at step 3 in the given way."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed

from electra.cluster.peers import Peers, SignalMonitor
from electra.common.errors import InfrastructureError

way = sys.argv[1]
torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = torch.distributed.get_rank()
signal.signal(signal.SIGTERM, lambda *_: None)  # never runs while the process waits for the other one
try:
    with (
        Peers(timeout_seconds=2 if way in ("stops", "dies", "hangs") else 600, silence_seconds=2) as peers,
        SignalMonitor([signal.SIGTERM], patience_seconds=0.5, report=peers.location),
    ):
        for step in range(1_000_000):
            if rank == 1 and step == 3:
                time.sleep(1)  # long enough to have been seen
                if way in ("hangs", "keeps one waiting"):
                    print("hanging", file=sys.stderr, flush=True)
                    time.sleep(60)
                os.kill(os.getpid(), signal.SIGSTOP if way in ("stops", "is silent") else signal.SIGKILL)
            peers.begin_step(step)
            torch.distributed.all_reduce(torch.ones(1))
except InfrastructureError as error:
    print(f"error: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)
