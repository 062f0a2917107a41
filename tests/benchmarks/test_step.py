"""The benchmark of a step runs every method in one process group, and says why one cannot run."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.benchmarks import step, tables
from tests.conftest import Command

TINY = ["--utterances", "300", "--rounds", "2", "--steps", "1", "--model-size", "hidden_size=12"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "workers", "sizes", "methods"),
    [
        (
            "clc",
            "2",
            ["char_filters=4", "embedding_size=8"],
            "edp:noise=paper+alpha=public,sgd:precision=bfloat16+memory_batch=2,dpsgd,plain,opacus,opacus-ghost",
        ),
        ("bert", "1", ["heads=2", "layers=1"], "edp,dpsgd,opacus,opacus-ghost"),
    ],
    ids=["clc", "bert"],
)
def test_every_method_has_a_row_with_a_ratio_or_a_reason(
    long_story: None, model: str, workers: str, sizes: list[str], methods: str, command: Command
) -> None:
    options = [word for size in sizes for word in ("--model-size", size)]
    words = ["--models", model, "--methods", methods, "--batch-sizes", "4", "--workers", workers]
    code, out, err = command(*words, *TINY, *options, commands=step.app)
    assert code == 0, err
    document = json.loads(out)
    assert {"machine", "versions", "rows"} <= document.keys()
    rows = {(row["method"], row["workers"]): row for row in document["rows"]}
    counts = [int(count) for count in workers.split(",")]
    assert len(rows) == len(document["rows"]) == (1 + len(methods.split(","))) * len(counts), "sgd is always there"
    without = {("opacus", 2), ("opacus-ghost", 2)} | ({("opacus-ghost", 1)} if model == "clc" else set())
    if importlib.util.find_spec("opacus") is None:  # an extra: its rows then say that it is not installed
        without |= {(method, count) for method in ("opacus", "opacus-ghost") for count in counts}
    for (method, count), row in rows.items():
        if (method, count) in without:
            assert row["ratio"] is None
            assert row["reason"]
        else:
            assert 0 < row["ratio_q1"] <= row["ratio"] <= row["ratio_q3"]
            assert row["utterances_per_second"] > 0
    assert all(rows["sgd", count]["ratio"] == rows["sgd", count]["ratio_q3"] == 1 for count in counts)


@pytest.mark.stress
def test_table_2_sets_the_papers_figures_beside_ours(command: Command) -> None:
    sizes = [word for size in ("char_filters=4", "embedding_size=8") for word in ("--model-size", size)]
    words = ["--models", "clc", "--corpora", "health", "--batch-size", "8", *TINY, *sizes]
    code, out, err = command(*words, commands=tables.app)
    assert code == 0, err
    (row,) = json.loads(out)["rows"]
    assert (row["paper_dpsgd"], row["paper_edpsgd"]) == (153.9, 1.14)
    assert row["utterances"] == 138
    assert row["dpsgd_over_paper"] == pytest.approx(row["dpsgd"] / 153.9)
    assert 0 < row["edpsgd_q1"] <= row["edpsgd"] <= row["edpsgd_q3"]
    assert row["sgd_seconds"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "edp:nose=paper"], "unknown option 'nose'; allowed: noise, alpha, alpha_noise"),
        (["--methods", "adam"], "--methods = 'adam': allowed: sgd, edp, dpsgd"),
        (["--batch-sizes", "0"], "--batch-sizes = '0': allowed: whole numbers"),
        (["--batch-sizes", "3", "--workers", "2"], "allowed: multiples of --workers = 2"),
        (["--model-size", "hidden_size=big"], "--model-size = 'hidden_size=big'"),
        (["--corpus", "nothing"], "nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_mistake_is_one_line_that_says_what_is_allowed(words: list[str], said: str, command: Command) -> None:
    code, out, err = command(*words, commands=step.app)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
