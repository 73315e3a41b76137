"""Stands in for a training run: does what the run's method name says."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    directory = Path(sys.argv[1])
    run = json.loads((directory / "run.json").read_text("utf-8"))
    with (directory.parents[4] / "order.txt").open("a") as file:
        file.write(f"{run['method']} {run['seed']}\n")
    (directory / "run").mkdir(exist_ok=True)
    rows = "env_steps,buffer_size\n1000,200\n2000,250\n"
    (directory / "run" / "metrics.csv").write_text(rows, "utf-8")
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    about = {"threads": os.environ.get("OMP_NUM_THREADS"), "cores": affinity}
    if run["method"] == "laber":
        (directory / "error.txt").write_text("Traceback: ValueError: no torque\n", "utf-8")
        return 1
    if run["method"] == "per":
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if run["method"] == "fac+laber":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        (directory / "asleep").touch()
        time.sleep(60)
    done = {
        "fingerprint": run["fingerprint"],
        "reward": 1.0,
        "stored": 300,
        "offered": 1000,
        "size": 250,
        "wall_seconds": 2.0,
        **about,
    }
    (directory / "done.json").write_text(json.dumps(done), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
