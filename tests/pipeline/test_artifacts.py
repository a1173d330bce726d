"""Artifacts of a flow run, read from the results in the stages' formats."""

from pathlib import Path

from flows.pipeline import data_report, score_rows
from flows.plan import reasons

ROOT = Path(__file__).resolve().parents[2]


def test_the_data_report_has_every_check_of_the_committed_results():
    lines = data_report(ROOT)
    assert {"## corpus", "## shards", "## tasks"} <= set(lines)
    assert any("doc_id is the hash of the text" in line and "| passed |" in line for line in lines)
    assert all(line.count(" | ") == 3 for line in lines if line.startswith("| ") and "check |" not in line)


def test_scores_have_a_row_per_task():
    rows = score_rows(ROOT)
    assert "SQuAD1.1" in {row["task"] for row in rows}
    assert set(rows[0]) == {"task", "metric", "pretrained", "scratch", "gain"}


def test_a_workspace_without_results_has_nothing_to_show(tmp_path):
    assert data_report(tmp_path) == []
    assert score_rows(tmp_path) == []


def test_dvcs_reasons_stand_on_one_line():
    status = {
        "pretrain": [
            {"changed deps": {"electra/pretrain": "modified", "params.yaml": {"pretrain.objective": "modified"}}},
            {"changed outs": {"models/pretrained": "deleted"}},
            "changed command",
        ]
    }
    expected = (
        "electra/pretrain is modified; pretrain.objective in params.yaml is modified; "
        "models/pretrained is deleted; changed command"
    )
    assert reasons(status) == {"pretrain": expected}
