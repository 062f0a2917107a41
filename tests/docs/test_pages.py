"""Everything that the documents name exists: files, modules, settings, public names. Generated parts are current."""

from __future__ import annotations

import json
import re
import runpy
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import edp
from sweeps.config.loading import load_recipe
from tests.benchmarks.quickstart import readme_rows
from trainables.corpora.generators import generate
from trainables.measure.attacks import every_attack

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "log")]
"""All pages but those of the log, which keep the names of their day."""
PACKAGES = ("edp", "trainables", "sweeps", "dashboards")
RESULTS = ROOT / "tests" / "benchmarks" / "results"
WRITTEN = {"attacks.html", "attacks.json", "audit.json", "config.json", "curve.json", "ledger.json", "model.pt"} | {
    "model.safetensors",
    "pretraining.json",
}
"""Files that the product writes, named without their folder."""


def spans(page: Path) -> set[str]:
    """Return everything that a page sets as code within its lines."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    return set(re.findall(r"`([^`\n]+)`", prose))


def settings() -> set[str]:
    """Return every setting of a recipe, and the parts that they are in."""
    paths = [one.path for one in runpy.run_path(str(DOCS / "settings.py"))["settings"]()]
    return {".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 2)}


def resolves(name: str) -> bool:
    """Return True if a dotted name is that of a module, or of something in one."""
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


def test_the_table_of_settings_is_that_of_the_specs() -> None:
    page = (DOCS / "settings.md").read_text()
    assert page == runpy.run_path(str(DOCS / "settings.py"))["page"](), "write it anew: python docs/settings.py"
    for path in ("corpus.path", "model.features.whiten", "edp.z0", "search.stop.margin"):
        assert page.count(f"| `{path}`") == 1, path
    assert page.count("| `model.layers` (of `") == 2, "of either kind of model"


def test_every_attack_stands_in_the_table() -> None:
    page = runpy.run_path(str(DOCS / "hooks.py"))["on_page_markdown"]((DOCS / "attacks.md").read_text())
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


def test_the_front_page_is_the_first_screen_of_the_readme() -> None:
    hooks = runpy.run_path(str(DOCS / "hooks.py"))
    page = hooks["on_page_markdown"]((DOCS / "index.md").read_text())
    assert "](screenshots/pareto-top.png)" in page
    assert "](privacy.md#one-guarantee-for-search-and-release)" in page
    assert hooks["FRONT"] not in page


def test_the_ddp_tutorial_solves_for_noise() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "tutorial-ddp.md").read_text(), flags=re.S | re.M)
    found: dict[str, Any] = {}
    exec(block, found)
    planned = edp.planned_ledger(found["spec"].model_copy(update={"z0": found["z0"]}), **found["run"])
    assert edp.epsilon(planned, found["spec"].delta) == pytest.approx(8, abs=1e-3)


def test_the_readmes_figures_are_those_of_the_committed_run() -> None:
    """SER is rounded, a lower bound of ε down, and every ε up."""
    rows = readme_rows(json.loads((RESULTS / "quickstart.json").read_text()))
    assert "\n".join(rows) in (ROOT / "README.md").read_text()


def test_the_site_needs_no_network() -> None:
    """Nothing makes pages load from elsewhere: Material would fetch fonts, and its own icons come with it."""
    text = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in text
    assert not re.search(r"https?://", text)
    assert not re.search(r"https?://|@import", (DOCS / "style.css").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_quickstarts_model_is_asked_about_its_own_corpus(page: str) -> None:
    (asked,) = re.findall(r'"inputs": \["([^"]+)"\]', (ROOT / page).read_text())
    private = load_recipe("quickstart", [])[1].corpus
    words = {word for utterance in generate(private.name, 5_000, 0) for word in utterance.tokens}
    assert set(asked.split()) <= words
