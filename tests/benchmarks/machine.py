"""The machine and the packages of a measurement, without the names of machine and person."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from edp.noise.compiled import kernel


def machine() -> dict[str, str | int | float | bool]:
    """Return the processor, cores, memory, current load, GPU, and whether noise comes from the compiled kernel."""
    found: dict[str, str | int | float | bool] = {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "compiled_noise": kernel() is not None,
    }
    if torch.cuda.is_available():
        found["gpu"] = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return found


def about(module: str, words: Sequence[str], *packages: str) -> dict[str, Any]:
    """Return what each document begins with: date, command, machine and versions."""
    command = " ".join([f"python -m tests.benchmarks.{module}", *words])
    return {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions(*packages)}


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, of the packages that a step uses, and of more of them."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "transformers", "opacus", *packages):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
