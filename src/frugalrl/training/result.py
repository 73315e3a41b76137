"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frugalrl.training.config import TrainConfig
from frugalrl.training.evaluation import Episodes
from frugalrl.training.metrics import Row

if TYPE_CHECKING:
    from frugalrl.agents.agent import Agent
    from frugalrl.agents.policy import Policy
    from frugalrl.replay.buffer import ReplayBuffer


@dataclass(frozen=True, repr=False)
class TrainResult:
    """A finished run."""

    config: TrainConfig
    """As resolved: nothing is left open."""
    directory: Path | None
    """Where its files are."""
    agent: Agent
    """The learner as it was at the end: networks, optimizers, exploration."""
    policy: Policy
    """The trained policy: observation in, action out, in NumPy."""
    buffer: ReplayBuffer
    """Everything kept."""
    final: Episodes | None
    """The evaluation at the end."""
    evaluations: list[tuple[int, float]]
    """(env_steps, mean reward) of the evaluations while training."""
    metrics: list[Row]
    """The rows of metrics.csv."""
    env_steps: int
    updates: int
    episodes: int
    train_seconds: float
    """Wall time spent stepping and learning."""
    wall_seconds: float
    """Wall time of everything, evaluation and files included."""
    peak_memory_bytes: int
    """Most memory the process ever held."""
    fingerprint: str
    """Digest of agent, buffer, counters and last observations: equal only if every bit is."""

    def __repr__(self) -> str:
        final = "" if self.final is None else f", final {self.final}"
        where = "" if self.directory is None else f", {str(self.directory)!r}"
        return (
            f"TrainResult({self.config.env_name} {self.config.algo}, {self.env_steps:,} steps"
            f"{final}, {len(self.buffer):,} of {self.buffer.stats.offered:,} transitions held"
            f"{where})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Give what final.json holds."""
        stats = self.buffer.stats
        final: dict[str, Any] = {}
        if self.final is not None:
            final = {
                "reward_mean": self.final.mean,
                "reward_std": self.final.std,
                "control_cost_mean": float(self.final.control_costs.mean()),
                **self.final.to_dict(),
            }
        return {
            "env": self.config.env_name,
            "algo": self.config.algo,
            "admission": self.buffer.admission.name,
            "seed": self.config.seed,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "final": final or None,
            "evaluations": [list(pair) for pair in self.evaluations],
            "buffer": {
                "size": len(self.buffer),
                "bytes": self.buffer.nbytes,
                "filter_bytes": int(self.buffer.admission.nbytes),
                "offered": stats.offered,
                "stored": stats.stored,
                "replaced": stats.replaced,
                "dropped": stats.dropped,
                "evicted": stats.evicted,
                "rejected_nonfinite": stats.rejected_nonfinite,
                "acceptance_rate": stats.acceptance_rate,
            },
            "train_seconds": round(self.train_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
            "fingerprint": self.fingerprint,
        }
