"""`edp-sweep settings` prints what docs/settings.md holds."""

from __future__ import annotations

import json

import pytest

from sweeps.config.all_settings import settings
from tests.conftest import Command


def test_all_settings_or_those_with_a_word_in_path_or_meaning_are_printed(command: Command) -> None:
    code, out, err = command("settings", "--json")
    assert code == 0, err
    assert json.loads(out) == [one._asdict() for one in settings()]
    code, out, err = command("settings", "Batch_Size")
    assert code == 0, err
    assert "training.batch_size: default 64; allowed: a whole number ≥ 1 or full\n    utterances per step of" in out
    assert "training.non_private.batch_size: default null; allowed: a whole number ≥ 1 or null\n" in out
    assert "edp.C" not in out
    assert "edp.C" in command("settings", "scaled gradient")[1]
    assert "model.layers (of clc): default 2; " in command("settings", "model.layers")[1]


def test_every_setting_says_what_it_means() -> None:
    assert {one.path for one in settings() if not one.meaning} == {"model.kind"}


@pytest.mark.parametrize(
    ("word", "says"),
    [("whitn", "did you mean whiten?"), ("xyzzy", "allowed: a part of a setting's path or meaning, such as batch")],
)
def test_a_word_of_no_setting_is_refused(word: str, says: str, command: Command) -> None:
    wanted = f"edp-sweep: word = '{word}': it is in no setting; {says}\n"
    assert command("settings", word) == (2, "", wanted)
