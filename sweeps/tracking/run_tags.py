"""What a run is tagged with, and how settings and metrics are written for MLflow's tables and charts."""

from __future__ import annotations

import functools
import getpass
import importlib.metadata
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.spec import TrialSpec

WEIGHTS = "weights_sha256"
"""Of a registered version: the SHA-256 of its `model.pt`."""
NOTE = "mlflow.note.content"
"""The tag that MLflow shows as a run's description."""

_PACKAGES = ("ray", "torch", "transformers", "optuna", "mlflow")


@functools.cache
def environment_tags() -> dict[str, str]:
    """Git commit (where there is one) and versions of what the numbers depend on."""
    tags = {f"version.{name}": importlib.metadata.version(name) for name in _PACKAGES}
    commit = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tags | ({"git_commit": commit.stdout.strip()} if commit.returncode == 0 else {})


def trial_tags(sweep: str, spec: TrialSpec) -> dict[str, str]:
    """Tags of every run that trains."""
    return {
        **environment_tags(),
        "sweep": sweep,
        "corpus": spec.corpus.name,
        "model": spec.model.kind,
        "method": spec.training.method,
        "state": "running",
    }


def person() -> str:
    """Who started this: whom the tracking server knows, else whom the machine knows."""
    try:
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names; None is left out."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = value
    return found


def charted(metrics: Mapping[str, float]) -> dict[str, float]:
    """With the logarithm of each finite ε: MLflow's charts have no logarithmic axis where they compare runs."""
    logs = {
        f"log10_{key}": math.log10(metrics[key])
        for key in ("epsilon", "epsilon_user", "epsilon_paper")
        if 0 < metrics.get(key, math.inf) < math.inf
    }
    return {**metrics, **logs}


def infinite(metrics: Mapping[str, float]) -> dict[str, str]:
    """As tags: what is infinite of a run, such as the ε of plain SGD."""
    return {key: "infinite" for key, value in metrics.items() if math.isinf(value)}


def source_tags() -> dict[str, str]:
    """What MLflow shows as a run's source."""
    commit = environment_tags().get("git_commit")
    return {"mlflow.source.name": "edp-sweep", "mlflow.source.type": "LOCAL"} | (
        {"mlflow.source.git.commit": commit} if commit else {}
    )
