"""What becomes of a proof's lines: rows, also of a phase that was cut off."""

from __future__ import annotations

from benchmarks.device.rows import rows_of


def test_a_training_that_was_cut_off_keeps_its_last_figure() -> None:
    one = {"conve": "batch 512, rate 0.004", "together": "2"}
    other = {"conve": "batch 512, rate 0.002", "together": "2"}
    said = [
        one | {"s": "50", "by_epoch": "10", "sampled_valid_mrr": "0.2"},
        other | {"s": "50", "by_epoch": "10", "sampled_valid_mrr": "0.22"},
        one | {"s": "99", "by_epoch": "20", "sampled_valid_mrr": "0.25"},
        other | {"s": "200", "test_mrr": "0.3", "training_s": "190", "ms_per_step": "10"},
    ]
    found = {(row.workload, row.metric): (row.ours, row.note) for row in rows_of({"conve": said})}
    assert found == {
        ("ConvE, FB15k-237, batch 512, rate 0.004", "validation MRR"): (
            0.25,
            "cut off after epoch 20, 99 s; of 3,000 queries",
        ),
        ("ConvE, FB15k-237, batch 512, rate 0.002", "test MRR"): (
            0.3,
            "190 s of training, 10 ms a step, 2 trainings at once",
        ),
    }
