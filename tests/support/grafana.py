"""The metrics that Grafana's dashboard names."""

from __future__ import annotations

import json
import re
from pathlib import Path

FILE = Path(__file__).parents[2] / "dashboards" / "grafana" / "edp-sweeps.json"
ONLY_WITH_A_GPU = {"ray_node_gpus_utilization", "ray_node_gram_used"}


def named_metrics() -> set[str]:
    """Every metric that a panel or a variable of the dashboard asks for."""
    document = json.loads(FILE.read_text())
    expressions = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    expressions += [v["query"]["query"] for v in document["templating"]["list"] if v["type"] == "query"]
    return {name for expression in expressions for name in re.findall(r"\bray_\w+", expression)}
