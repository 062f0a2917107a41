"""What the packages offer under their own names: all of it is there, and asking for nothing imports nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = ("edp", "trainables", "sweeps")
HEAVY = ("torch", "ray", "mlflow", "optuna", "transformers", "pandas", "scipy")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_completes(package: str) -> None:
    found = import_module(package)
    for name in found.__all__:
        assert getattr(found, name).__module__.startswith(f"{package}."), name
    assert set(found.__all__) <= set(dir(found))
    with pytest.raises(AttributeError, match="nothing"):
        _ = found.nothing


def test_importing_the_packages_imports_nothing_heavy() -> None:
    code = f"import sys, {', '.join(PACKAGES)}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_edp_with_all_its_names_needs_neither_ray_nor_mlflow() -> None:
    code = "import sys; from edp import *; print([m for m in ('ray', 'mlflow', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
