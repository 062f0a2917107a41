"""A name is a name: no path, no option, nothing that a file system cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edp.spec import UserError
from sweeps.text.paths import as_path, check_model_name, check_name, folder_name, is_name, short
from tests.support.permissions import unreadable

NO_NAMES = [
    "",
    ".",
    "..",
    "base/",
    "./base",
    "../ok/base",
    "/tmp/runs/base",
    "runs/base",
    "a\\b/",
    "-base",
    ".base",
    "_base",
    "a b",
    "a\nb",
    "a\0b",
    "é",
    "x" * 101,
    "x" * 256,
    "x" * 5000,
    "\udcff",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused_in_one_line_that_says_what_is_allowed(name: str) -> None:
    with pytest.raises(UserError, match=r"^name = .*allowed: letters") as refused:
        check_name("name", name)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("name", ["base/", "./base", "../ok/base", "/tmp/runs/base", "runs/base"])
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


def test_a_link_that_leads_to_itself_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match="leads nowhere"):
        as_path(str(tmp_path / "loop" / "below"))
    assert as_path(str(tmp_path)) == tmp_path


def test_what_lies_in_a_folder_of_somebody_elses_is_no_path(tmp_path: Path) -> None:
    with unreadable(tmp_path), pytest.raises(UserError, match=r"leads nowhere \(Permission denied"):
        as_path(str(tmp_path / "below"))


@pytest.mark.slow
def test_what_is_nested_or_long_is_shown_in_short() -> None:
    nested: list[object] = [1]
    for _ in range(10_000):
        nested = [nested]
    wide: list[object] = [1]
    for _ in range(60):  # 10**60 numbers, were they written out
        wide = [wide] * 10
    for value in (nested, wide, "x" * 10**6, 10**5000, {"a": nested}):
        assert len(short(value)) <= 80
    assert short("base") == "'base'"
    assert short(7) == "7"
