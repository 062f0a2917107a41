"""What the documents name is there: files, modules, functions, settings, public names. The picture is of the code."""

from __future__ import annotations

import re
import runpy
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainables.measure.attacks import every_attack
from trainables.pretraining.spec import PretrainSpec

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PACKAGES = ("edp", "trainables", "sweeps", "dashboards")
RESULTS = ROOT / "tests" / "benchmarks" / "results"
WRITTEN = {
    "attacks.html",
    "attacks.json",
    "curve.json",
    "ledger.json",
    "model.pt",
    "pretraining.json",
    "trial.json",
}
"""Files that the product writes, named without their folder."""


def spans(page: Path) -> set[str]:
    """What a page sets as code within its lines."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    return set(re.findall(r"`([^`\n]+)`", prose))


def settings() -> set[str]:
    """Every setting of a recipe, and of a recipe of `pretrain`, and the parts that they are in."""
    paths = [one.path for one in runpy.run_path(str(DOCS / "settings.py"))["settings"]()]
    pretraining = PretrainSpec.model_json_schema()
    paths += [f"training.{name}" for name in pretraining["$defs"]["PretrainingSpec"]["properties"]]
    return {".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 2)}


def resolves(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something in one."""
    found: Any = None
    for n, part in enumerate(name.split(".")):
        if found is None or isinstance(found, ModuleType):
            try:
                found = import_module(".".join(name.split(".")[: n + 1]))
                continue
            except ModuleNotFoundError:
                pass
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_everything_that_a_page_names_is_there(page: Path) -> None:
    known = settings()
    sections = {name.partition(".")[0] for name in known if "." in name}
    for span in spans(page) - WRITTEN:
        if re.fullmatch(rf"(?:{'|'.join(PACKAGES)}|\.ci|docs|examples|tests)/[\w./-]*", span):
            assert (ROOT / span).exists(), span
        elif re.fullmatch(r"[a-z0-9-]+\.json", span):
            assert (RESULTS / span).exists(), span
        elif match := re.fullmatch(r"(\w+)((?:\.\w+)+)(?: ?=.*)?", span):
            section, setting = match[1], match[1] + match[2]
            if section == "space":
                assert re.sub(r"^space\.|\.(choice|uniform|log_uniform|int)$", "", setting) in known, span
            elif section in sections or section in PACKAGES:
                assert setting in known or resolves(setting), span


def test_a_name_that_is_not_there_is_found_out() -> None:
    assert resolves("edp.hook.EDPHook.accumulate")
    assert not resolves("edp.hook.EDPHook.take")
    assert not resolves("sweeps.nothing.at_all")
    assert "search.stop.margin" in settings()
    assert "search.stop.nothing" not in settings()


@pytest.mark.parametrize("package", ["edp", "trainables", "sweeps"])
def test_the_reference_has_every_public_name_once(package: str) -> None:
    named = re.findall(rf"^::: {package}\.(\w+)$", (DOCS / "api" / f"{package}.md").read_text(), flags=re.M)
    assert sorted(named) == sorted(import_module(package).__all__)


def test_every_setting_stands_in_the_table() -> None:
    hook = runpy.run_path(str(DOCS / "settings.py"))
    page, models = (hook["on_page_markdown"]((DOCS / name).read_text()) for name in ("recipes.md", "models.md"))
    assert not any(place in page + models for place in hook["PLACES"])
    for path in ("objective", "stages[].learning_rate", "training.warm_up"):
        assert models.count(f"| `{path}`") == 1, path
    for path in ("corpus.path", "model.features.whiten", "training.micro_batches", "edp.z0", "search.stop.margin"):
        assert page.count(f"| `{path}`") == 1, path
    assert page.count("| `model.layers` (of `") == 2, "of either kind of model"


def test_every_attack_stands_in_the_table() -> None:
    page = runpy.run_path(str(DOCS / "attacks.py"))["on_page_markdown"]((DOCS / "attacks.md").read_text())
    for attack in every_attack():
        assert page.count(f"| `{attack.name}` | {attack.finds} |") == 1, attack.name


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    script = runpy.run_path(str(DOCS / "draw_rooms.py"))
    assert script["current"]() == script["PICTURE"].read_text(), "draw it anew: python docs/draw_rooms.py"


def test_every_room_is_described() -> None:
    page = (DOCS / "architecture.md").read_text()
    for package in ("trainables", "sweeps"):
        rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert set(re.findall(rf"^\| `{package}\.(\w+)` \|", page, flags=re.M)) == rooms


def test_the_site_needs_no_network() -> None:
    """What would make pages load from elsewhere is switched off; the rest of the theme comes with MkDocs."""
    text = (ROOT / "mkdocs.yml").read_text()
    assert "name: readthedocs" in text
    assert "highlightjs: false" in text
    assert not re.search(r"https?://", text)
    assert not re.search(r"https?://|@import", (DOCS / "style.css").read_text())
