"""What becomes of a proof's lines: rows, also of a phase that was cut off; and that a dry run has a row of each target."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from benchmarks.device import prove_common, prove_conve, prove_cuda
from benchmarks.device.rows import read, rows_of
from benchmarks.parts import hgt_graphs, hgt_step

from graphmill.kernels.runtime.threads import has_numba

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "device" / "prove_cuda.sh"
TARGETS = {
    "every system's trace, CPU against CUDA": [("mf: CPU and CUDA", "losses apart")],
    "resume": [("mf", "same bits after a stop"), ("hgt-full", "same bits after a stop")],
    "out-of-memory ladder": [("memory of 0.9 of the peak", "goes on"), ("memory of 0.9 of the peak", "losses apart")],
    "cancel": [("SIGTERM, turn 0", "until it ends"), ("SIGTERM, turn 1", "until it ends")],
    "pytest -m gpu": [("pytest -m gpu, kernels", "failed tests"), ("pytest -m gpu, suite", "failed tests")],
    "HGT against PyG": [("HGT layer, 67k, plain fp32", "step"), ("HGT layer, 67k, bf16 bf16", "step")],
    "the default beside it": [("hgt default fp32", "step")],
    "share of the limits": [(f"HGT layer, 67k, {n}", "step and limit") for n in ("plain fp32", "bf16 bf16")],
    "the limits": [("at its best", n) for n in ("fp32", "bf16", "copy")] + [("a call from the host", "view")],
    "SASRec and KGAT": [(n, "step") for n in ("sasrec", "kgat_pairs", "kgat_facts")],
    "ConvE": [("ConvE, FB15k-237, learning_rate 0.003", "test MRR")],
}
"""What the proof has to show: the rows that show each, in a dry run's small choice of cases."""


@pytest.mark.long
def test_a_dry_run_has_a_row_for_each_target(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="HGT's rival")
    phases = [
        "card",
        "resume",
        "kernels",
        "traces",
        "oom",
        "cancel",
        "suite",
        "hgt",
        "plain",
        "systems",
        "profile",
        "conve",
    ]
    variables = {"DEVICE": "cpu", "PYTHON": sys.executable, "OUT": str(tmp_path), "BUDGET": "1700", "JOBS": "1"}
    variables |= {"CONVE_SETTINGS": '{"training": {"learning_rate": 0.003}}'}
    process = subprocess.run(["bash", SCRIPT, *phases], env={**os.environ, **variables}, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-3000:]
    rows = rows_of(read(tmp_path / "prove.tgz"))
    result = {(re.sub("FB15k-237, .*(?=learning)", "FB15k-237, ", row.workload), row.metric) for row in rows}
    assert not {name: output for name, output in TARGETS.items() if not result.issuperset(output)}
    assert not [row for row in rows if row.metric == "ran"]


def test_all_phases_have_their_time_even_where_each_takes_all_of_it() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    most = {name: int(seconds) for name, seconds in re.findall(r"\[(\w+)\]=(\d+)", text)}
    together = set(re.search('together="(.*)"', text)[1].split())
    phases = set(re.search(r"phases=\((card .*)\)", text)[1].split()) - {"profile"}
    assert max(most[p] for p in phases & together) + sum(most[p] for p in phases - together) <= 470


def test_an_archive_is_read_with_the_tests_and_the_cut_offs(tmp_path: Path) -> None:
    files = {
        "./traces.log": 'said\nROW {"case": "kgat", "apart": 1e-07}\nROW {"case": "hgt", "failed": "E: x"}\n',
        "./suite.xml": '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>',
        "./systems.said": "systems|exit 124: cut off after 60 s; |60\n",
        "./plain.said": "plain|exit 0: sasrec 3 x|9\n",
        "./numba/site/of/a/package.json": "{}",
    }
    with tarfile.open(tmp_path / "prove.tgz", "w:gz") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content.encode()))
    rows = {(r.workload, r.metric): (r.ours, r.holds, r.note) for r in rows_of(read(tmp_path / "prove.tgz"))}
    assert rows == {
        ("kgat: CPU and CUDA", "losses apart"): (1e-07, True, ""),
        ("traces, hgt", "ran"): (0.0, False, "E: x"),
        ("pytest -m gpu, suite", "failed tests"): (2, False, "5 passed, 2 skipped"),
        ("systems, its end", "ran"): (0.0, False, "exit 124: cut off after 60 s; "),
    }


def test_a_phase_in_which_a_case_failed_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def phase(device: torch.device, tiny: bool) -> str:
        for name in ("kgat", "mmgcn"):
            with prove_common.case(case=name):
                assert name == "mmgcn", "of no use"
                prove_common.row(case=name, ms=1 / 3)
        return "all well"

    monkeypatch.setitem(prove_cuda.PHASES, "card", phase)
    monkeypatch.setattr(sys, "argv", ["prove_cuda", "card", "--device", "cpu"])
    monkeypatch.setenv("PROVE_NUMBA", "1")
    with pytest.raises(SystemExit) as ended:
        prove_cuda.main()
    prove_common.BAD.clear()
    failed, fine, result = capsys.readouterr().out.splitlines()
    assert failed.startswith('ROW {"case": "kgat", "failed": "AssertionError: of no use')
    assert (fine, result, ended.value.code) == ('ROW {"case": "mmgcn", "ms": 0.3333}', "RESULT 1 bad: kgat", 1)


def test_a_step_is_compared_with_what_the_card_needs_at_least() -> None:
    best = [{"best": "fp32", "most": 50_000.0}, {"best": "bf16", "most": 700_000.0}, {"best": "copy", "most": 2_000.0}]
    fp32 = {"variant": "ours", "precision": "fp32", "ms": 36.0, "gflop": 500.0, "moved_gb": 10.0}
    bf16 = fp32 | {"variant": "ours,bf16", "precision": "bf16", "gflop": 490.0, "moved_gb": 6.0}
    tf32 = fp32 | {"precision": "tf32"}  # its limit was not measured, nor a rival
    rows = {(r.workload, r.metric): r for r in rows_of({"card": best, "hgt": [fp32, bf16, tf32]})}
    fp32_row, bf16_row = (rows[f"HGT layer, 67k, {n}", "step and limit"] for n in ("plain fp32", "bf16 bf16"))
    assert (fp32_row.theirs, fp32_row.holds) == (pytest.approx(15.0), True)
    assert (bf16_row.theirs, bf16_row.holds) == (pytest.approx(3.7), False)
    assert ("HGT layer, 67k, plain tf32", "step and limit") not in rows
    assert rows["HGT layer, 67k, plain tf32", "step"].holds is None


def test_what_a_step_needs_at_least_is_the_sum_that_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = hgt_graphs.load("tiny")
    model = hgt_step.Ours(typed, {"torch"})
    with monkeypatch.context() as without:  # products by numba are none of torch's, which counts its own
        without.setitem(sys.modules, "numba", None)
        without.setattr(
            "graphmill.kernels.products._onednn_serves", lambda *_: False
        )  # where an earlier test has looked
        has_numba.cache_clear()
        result = hgt_step.least(model, typed, 4)
    has_numba.cache_clear()
    nodes, edges = 300, 900
    rows = 3 * ((512 + 5 * 256) + (256 + 5 * 512)) * nodes + 6 * (256 + 512) * edges
    assert result["moved_gb"] * 1e9 == 32 * sum(p.numel() for p in model.parameters()) + 4 * rows
    # q, k, v and the output of each node, forward and twice backward; beside them the relations' matrices.
    of_nodes = 2 * 3 * nodes * (512 * 768 + 256**2 + 256 * 1536 + 512**2) / 1e9
    assert of_nodes < result["gflop"] < 1.5 * of_nodes


def test_conve_has_as_many_epochs_as_there_is_time_for() -> None:
    around, slower, each = prove_conve.AROUND, prove_conve.SLOWER, prove_conve.AN_EVALUATION
    assert prove_conve.epochs_for(around + 60 * (2 * slower + each / 20) + 0.1, 2.0, 20, 100) == 60
    assert prove_conve.epochs_for(1e9, 2.0, 20, 100) == 100
    assert prove_conve.epochs_for(10.0, 2.0, 20, 100) == 1


def test_conves_settings_are_the_examples_with_those_of_the_environment_over_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = tmp_path / "fb15k_237.yaml"
    example.write_text(
        "{system: conve, data: there, objective: {loss: softmax}, training: {epochs: 80, learning_rate: 0.01},"
        " acceleration: {batch_size: 512, precision: fp16}}"
    )
    monkeypatch.setattr(prove_conve, "EXAMPLE", example)
    monkeypatch.setenv("CONVE_SETTINGS", '{"training": {"learning_rate": 0.003}, "model": {"output_dropout": 0.3}}')
    name, values = prove_conve._settings(torch.device("cuda"), tiny=False)
    assert name == "fb15k_237.yaml, learning_rate 0.003, output_dropout 0.3"
    assert values["objective"] == {"loss": "softmax"}
    assert values["training"] == {"epochs": 80, "learning_rate": 0.003}
    assert values["model"] == {"output_dropout": 0.3}
    result = values["acceleration"]
    assert (result["batch_size"], result["device"], result["precision"]) == (512, "cuda", "")
    assert (result["checkpoint_every_epochs"], values["evaluation"]["eval_every"]) == (0, 20)


def test_a_training_that_was_cut_off_keeps_its_last_figure() -> None:
    one = {"conve": "batch 512, rate 0.004", "together": "2"}
    other = {"conve": "batch 512, rate 0.002", "together": "2"}
    said = [
        one | {"s": "50", "by_epoch": "10", "sampled_valid_mrr": "0.2"},
        other | {"s": "50", "by_epoch": "10", "sampled_valid_mrr": "0.22"},
        one | {"s": "99", "by_epoch": "20", "sampled_valid_mrr": "0.25"},
        other | {"s": "200", "test_mrr": "0.3", "training_s": "190", "ms_per_step": "10"},
    ]
    result = {(row.workload, row.metric): (row.ours, row.note) for row in rows_of({"conve": said})}
    assert result == {
        ("ConvE, FB15k-237, batch 512, rate 0.004", "validation MRR"): (
            0.25,
            "cut off after epoch 20, 99 s; of 3,000 queries",
        ),
        ("ConvE, FB15k-237, batch 512, rate 0.002", "test MRR"): (
            0.3,
            "190 s of training, 10 ms a step, 2 trainings at once",
        ),
    }
