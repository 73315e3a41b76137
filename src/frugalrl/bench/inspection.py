"""What a run's buffer holds, measured and put into words."""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from frugalrl.bench.matched import MatchedRandom
from frugalrl.training.config import CUSTOM, admission_text
from frugalrl.training.errors import RunDirectoryError
from frugalrl.training.records import MetricsRow, read_rows
from frugalrl.training.run_directory import RunDirectory

if TYPE_CHECKING:
    from frugalrl.replay.buffer import ReplayBuffer

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WARMUP_STEPS = 10_000  # from which cells are made where the buffer has no filter
_PARTS = 20  # of the run, in the picture of acceptance over time


def load_buffer(path: str | os.PathLike[str]) -> ReplayBuffer:
    """Load a run's final buffer, or its newest checkpoint's; also of a grid's own controls.

    Raises:
        RunDirectoryError: the run has neither, or its configuration cannot be read.
        StateFileError: the file is damaged.
    """
    from frugalrl.replay.buffer import ReplayBuffer

    directory = RunDirectory(path)
    config, _ = directory.read_config()
    matched = config.admission == f"{CUSTOM}{MatchedRandom.name}"
    made_by = MatchedRandom if matched else None
    if directory.buffer.is_file():
        return ReplayBuffer.load(directory.buffer, admission=made_by)
    found = directory.checkpoints.newest()
    if found is None:
        raise RunDirectoryError(
            f"{str(directory.path)!r} has no buffer: neither buffer.safetensors (was it run with "
            "--no-save-buffer?) nor a checkpoint"
        )
    return ReplayBuffer.from_state_dict(found.state["loop"]["buffer"], admission=made_by)


def inspect_run(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Measure a run's buffer, as JSON values; see `load_buffer` for what it raises."""
    from frugalrl.bench.contents import cells_from, describe_contents

    directory = RunDirectory(path)
    buffer = load_buffer(path)
    config, _ = directory.read_config()
    stats = buffer.stats
    stored = buffer.transitions()
    rewards = stored.rewards.astype(np.float64) if len(buffer) else np.zeros(1)
    found: dict[str, Any] = {
        "env": config.env_name,
        "algo": config.algo,
        "admission": admission_text(buffer.admission).removeprefix(CUSTOM),
        "finished": directory.finished,
        "size": len(buffer),
        "bytes": buffer.nbytes,
        "filter_bytes": int(buffer.admission.nbytes),
        "stats": asdict(stats) | {"acceptance_rate": stats.acceptance_rate},
        "rewards": {
            "least": float(rewards.min()),
            "most": float(rewards.max()),
            "median": float(np.median(rewards)),
            "mean": float(rewards.mean()),
        },
        "acceptance": acceptance(read_rows(directory.metrics)),
    }
    partition: Any = buffer.admission
    fitted = partition.name == "fac" and partition.is_fitted
    width = math.prod(stored.observations.shape[1:])
    if len(buffer) < (1 if fitted else width):
        return found
    observations = stored.observations.reshape(len(buffer), width)
    if not fitted:
        first = slice(_WARMUP_STEPS)
        partition = cells_from(observations[first], stored.rewards[first], buffer.observation_space)
    batch = min(config.batch_size or 256, len(buffer))
    found["contents"] = describe_contents(
        observations, stored.rewards, partition, batch, np.random.default_rng(0)
    )
    return found


def acceptance(rows: list[MetricsRow]) -> list[dict[str, float]]:
    """Give the share newly stored and the share replaced, part by part of the run."""
    names = ("env_steps", "offered", "stored", "replaced")
    points = np.array([(0, 0, 0, 0), *(tuple(row[name] or 0 for name in names) for row in rows)])
    marks = np.unique(np.linspace(0, len(rows), _PARTS + 1).round().astype(int))
    parts = []
    for (_, *first), (steps, *last) in itertools.pairwise(points[marks].astype(int).tolist()):
        offered, stored, replaced = np.subtract(last, first).tolist()
        shares = {"stored": stored / max(offered, 1), "replaced": replaced / max(offered, 1)}
        parts.append({"env_steps": steps, **shares})
    return parts


def inspection_lines(found: dict[str, Any]) -> list[str]:
    """Put the measures into words."""
    stats, size = found["stats"], max(found["size"], 1)
    state = "finished" if found["finished"] else "not finished"
    lines = [
        f"{found['env']}  {found['algo']}  admission {found['admission']}  ({state})",
        f"held      {found['size']:,} transitions, {found['bytes'] / 1e6:,.2f} MB "
        f"({found['bytes'] / size:,.0f} bytes each; the filter's share "
        f"{found['filter_bytes'] / size:,.0f})",
        f"offered   {stats['offered']:,}: stored {stats['stored']:,} "
        f"({stats['acceptance_rate']:.1%}), replaced {stats['replaced']:,}, "
        f"dropped {stats['dropped']:,}, evicted {stats['evicted']:,}, "
        f"refused {stats['rejected_nonfinite']:,}",
    ]
    if found["acceptance"]:
        shares = [part["stored"] for part in found["acceptance"]]
        picture = "".join(_BLOCKS[round(min(max(share, 0.0), 1.0) * 8)] for share in shares)
        lines.append(
            f"accepted  {picture}  from {shares[0]:.0%} at the beginning to "
            f"{shares[-1]:.0%} at step {found['acceptance'][-1]['env_steps']:,}"
        )
    spread = found["rewards"]
    lines.append(
        f"rewards   {spread['least']:,.3g} to {spread['most']:,.3g}, "
        f"median {spread['median']:,.3g}, mean {spread['mean']:,.3g}"
    )
    contents = found.get("contents")
    if not contents:
        return lines
    measures, minibatch = contents["measures"], contents["minibatch"]
    bars = contents["rewards_a_cell"]
    lines += [
        f"cells     {contents['cells']:,} over {contents['important_dimensions']} of "
        f"{contents['observations']} dimensions {contents['dimensions']}; "
        f"at most {contents['most_rewards_a_cell']:,} rewards in one",
        "rewards per cell",
    ]
    for power, count in enumerate(bars):
        low, high = 2**power, 2 ** (power + 1) - 1
        label = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        bar = "█" * round(30 * count / max(bars)) or ("▏" if count else "")
        lines.append(f"  {label:>20}  {bar} {count:,}")
    lines += [
        f"entropy   {measures['entropy']:.3f} nats over (cell, reward bin); without equivalents "
        f"it were log m = {measures['entropy_limit']:.3f}; {measures['surplus']:,} transitions "
        f"have an equivalent before them",
        f"minibatch {minibatch['zeta']:.1f} of {minibatch['batch_size']} have an equivalent in "
        f"it (zeta); factor (b + zeta^2 + zeta) / b = {minibatch['factor']:.2f}",
    ]
    return lines
