"""A workspace whose stages take almost no time, to test DVC, Prefect and the flow."""

from pathlib import Path

from tests.cluster.prefect_site import Site

NUM_CELLS = 8
STAGE = """
import sys
from pathlib import Path
out, number = Path(sys.argv[1]), sys.argv[2]
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(f"{out.name} {number}")
"""
DVC_YAML = f"""
stages:
  pretrain:
    cmd: python stage.py out/pretrained ${{number}}
    deps: [stage.py]
    params: [number]
    outs: [out/pretrained]
  finetune:
    matrix:
      cell: {list(range(NUM_CELLS))}
    cmd: python stage.py out/cell-${{item.cell}} ${{number}}
    deps: [out/pretrained]
    params: [number]
    outs:
      - out/cell-${{item.cell}}
  evaluate:
    cmd: python stage.py out/scores ${{number}}
    deps: [{", ".join(f"out/cell-{cell}" for cell in range(NUM_CELLS))}]
    params: [number]
    outs: [out/scores]
"""


def make(place: Site, folder: Path) -> Path:
    """The workspace, a DVC project without git."""
    folder.mkdir(parents=True)
    (folder / "stage.py").write_text(STAGE)
    (folder / "dvc.yaml").write_text(DVC_YAML)
    set_number(folder, 0)
    place.run("dvc", "init", "--quiet", "--no-scm", cwd=folder)
    place.run("dvc", "config", "core.check_update", "false", cwd=folder)
    return folder


def set_number(workspace: Path, number: int) -> None:
    """Make every stage out of date."""
    (workspace / "params.yaml").write_text(f"number: {number}\n")
