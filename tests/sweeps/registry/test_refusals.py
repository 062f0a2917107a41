"""What does not load, does not answer or is not what the trial wrote becomes no version, and is one line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mlflow.exceptions import MlflowException

from edp.spec import UserError
from sweeps.store.records import digests
from sweeps.tracking.tracker import Tracker
from tests.support.registering import TASKS, Kept


@pytest.mark.slow
def test_an_encoder_that_does_not_say_its_architecture_is_refused(kept: Kept) -> None:
    if kept.kind in ("clc", "heads"):
        kept.register(f"{kept.kind} without one")  # its spec says it all
        return
    saved = torch.load(kept.folder / "model.pt", weights_only=True)
    torch.save({"state_dict": saved["state_dict"], "labels": saved["labels"]}, kept.folder / "model.pt")
    try:
        with pytest.raises(UserError, match=r"model\.pt does not name its architecture; allowed: "):
            kept.register("unknown")
    finally:
        torch.save(saved, kept.folder / "model.pt")


def test_what_cannot_be_registered_is_refused_in_one_line(kept: Kept) -> None:
    for name in ("", "a/b", "../x", "x" * 200):
        with pytest.raises(UserError, match=r"--register = .*allowed: letters"):
            kept.register(name)
    hidden = kept.folder / "elsewhere.pt"
    (kept.folder / "model.pt").rename(hidden)
    try:
        with pytest.raises(UserError, match=r"model\.pt is gone"):
            kept.register("gone")
    finally:
        hidden.rename(kept.folder / "model.pt")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _text(file: Path) -> None:
    file.write_text("hello")


def _of_another_model(file: Path) -> None:
    torch.save({"state_dict": {"x": torch.zeros(3)}, "labels": {"intents": ["a"], "tags": ["O"]}}, file)


def _without_numbers(file: Path) -> None:
    saved = torch.load(file, weights_only=True)
    saved["state_dict"] = {
        name: tensor.fill_(math.nan) if tensor.is_floating_point() else tensor
        for name, tensor in saved["state_dict"].items()
    }
    torch.save(saved, file)


@pytest.mark.parametrize("fault", [_cut, _empty, _text, _of_another_model, _without_numbers])
def test_a_model_that_does_not_load_and_answer_becomes_no_version(fault: Callable[[Path], None], kept: Kept) -> None:
    _refused(kept, kept.folder / "model.pt", fault)


@pytest.mark.parametrize("kind", TASKS)
def test_a_model_of_one_task_alone_that_answers_nan_becomes_no_version(
    kind: str, tracker: Tracker, tmp_path: Path
) -> None:
    kept = Kept(tmp_path, kind, tracker)
    _refused(kept, kept.folder / "model.pt", _without_numbers)


@pytest.mark.parametrize("fault", [_cut, _empty, _text])
def test_features_that_do_not_load_become_no_version(fault: Callable[[Path], None], kept: Kept) -> None:
    features = kept.corpus.folder / "features"
    names = [name for name in ("tokenizer.json", "vectors.npy", "words.json") if (features / name).is_file()]
    assert names
    for name in names:
        _refused(kept, features / name, fault)


def _refused(kept: Kept, file: Path, fault: Callable[[Path], None]) -> None:
    whole = file.read_bytes()
    fault(file)
    try:
        with pytest.raises(
            UserError, match=r"(--register = 'broken': |does not name its architecture).*; allowed: "
        ) as refused:
            kept.register("broken")
        assert "\n" not in str(refused.value)
    finally:
        file.write_bytes(whole)
    assert not kept.tracker.client.search_model_versions("name = 'broken'")
    with pytest.raises(MlflowException):
        kept.tracker.client.get_registered_model("broken")


@pytest.mark.slow
def test_files_that_are_not_those_that_the_trial_wrote_become_no_version(kept: Kept) -> None:
    features = kept.corpus.folder / "features"
    wrote = digests(kept.folder, features)
    assert {"model.pt", "ledger.json"} < set(wrote)
    assert sum(name.startswith("features/") for name in wrote) >= 1
    name = f"compared {kept.kind}"
    kept.register(name, wrote=wrote)
    for file, place in (
        *((file, kept.folder / file) for file in ("model.pt", "ledger.json")),
        *((file, kept.corpus.folder / file) for file in wrote if file.startswith("features/")),
    ):
        whole = place.read_bytes()
        place.write_bytes(whole + b"\n")  # which JSON and PyTorch do not mind
        try:
            with pytest.raises(UserError, match=f"{re.escape(str(place))} is not the file that the trial wrote"):
                kept.register(name, wrote={file: wrote[file]})
        finally:
            place.write_bytes(whole)
    assert len(kept.tracker.client.search_model_versions(f"name = '{name}'")) == 1
