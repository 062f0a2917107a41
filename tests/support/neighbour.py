"""Another sweep's driver on a cluster, which holds some of its CPUs until its standard input ends.

python -m tests.support.neighbour ADDRESS NAME CPUS
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from trainables.workers.ray_internals import under_name


@contextmanager
def neighbour(address: str, name: str, cpus: float) -> Iterator[None]:
    """It is there, and holds its CPUs, while the block runs."""
    words = [sys.executable, "-m", "tests.support.neighbour", address, name, str(cpus)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        yield
        process.communicate()


if __name__ == "__main__":
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False, job_config=under_name(sys.argv[2]))
    ray.get(ray.util.placement_group([{"CPU": float(sys.argv[3])}]).ready())
    print("here", flush=True)
    sys.stdin.read()
    ray.shutdown()
