"""Eight fine-tuning cells side by side, ten times: all must land in dvc.lock every time.

``python -m tests.cluster.cells [--times 10]``. DVC takes its lock again when a stage's command has ended; without
``--wait-for-lock`` a finished cell is lost now and then.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.cluster.cheap import NUM_CELLS, make, set_number
from tests.cluster.prefect_site import Site, site

RUN = """
import sys
from pathlib import Path
from flows.pipeline import train_encoder
from flows.workspace import Workspace
state = train_encoder(Workspace(root=Path(sys.argv[1])), parallel=8, return_state=True)
sys.exit(0 if state.is_completed() else 1)
"""


def recorded_cells(workspace: Path, number: int) -> int:
    """Cells that dvc.lock has with this value of the parameter."""
    stages = yaml.safe_load((workspace / "dvc.lock").read_text())["stages"]
    cells = [found for name, found in stages.items() if name.startswith("finetune@")]
    return sum(cell["params"]["params.yaml"]["number"] == number for cell in cells)


def run_once(place: Site, workspace: Path, number: int) -> None:
    set_number(workspace, number)
    place.run(sys.executable, "-c", RUN, str(workspace))
    found = recorded_cells(workspace, number)
    assert found == NUM_CELLS, f"run {number}: {found} of {NUM_CELLS} cells are in dvc.lock"
    assert place.run("dvc", "status", "--json", cwd=workspace).strip() == "{}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="electra-cells-"))
    with site(folder / "site") as place:
        workspace = make(place, folder / "workspace")
        start = time.monotonic()
        for number in range(1, options.times + 1):
            run_once(place, workspace, number)
            print(f"{time.monotonic() - start:6.1f} s  run {number}: {NUM_CELLS} of {NUM_CELLS} cells", flush=True)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
