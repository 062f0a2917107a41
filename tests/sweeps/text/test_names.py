"""A name is a name: no path, no option, nothing that a file system cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edp.spec import UserError
from sweeps.text.paths import as_path, check_model_name, check_name, folder_name, is_name

NO_NAMES = [
    "",
    ".",
    "..",
    "base/",
    "../ok/base",
    "/tmp/runs/base",
    "a\\b/",
    "-base",
    ".base",
    "a b",
    "a\nb",
    "a\0b",
    "x" * 101,
    "\udcff",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_in_one_line_that_says_what_is_allowed(name: str) -> None:
    with pytest.raises(UserError, match=r"^name = .*allowed: letters") as refused:
        check_name("name", name)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("name", ["base/", "/tmp/runs/base"])
def test_a_path_to_a_sweep_is_answered_with_its_name(name: str) -> None:
    with pytest.raises(UserError, match=r"did you mean base\?$"):
        check_name("name", name)


@pytest.mark.slow
@given(st.text())
def test_a_name_is_one_part_of_a_path_and_stays_what_it_is(text: str) -> None:
    assert is_name(folder_name(text)), "whatever a file is called, something can be named after it"
    if is_name(text):
        assert Path("runs", text).parent == Path("runs")
        assert Path("runs", text).name == text
        assert check_model_name(text) == check_name("name", text) == text


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 256, "\ud800"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="allowed: "):
        as_path(path)
