"""What a run calls as it goes: after rows of metrics, evaluations and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from frugalrl.agents.policy import Policy
    from frugalrl.training.config import TrainConfig
    from frugalrl.training.evaluation import Episodes
    from frugalrl.training.loop import TrainingLoop
    from frugalrl.training.records import MetricsRow


@dataclass
class RunView:
    """What a callback sees of a run, and how it ends it."""

    config: TrainConfig
    """As resolved."""
    directory: Path | None
    """Where files go, None for a run that leaves none."""
    loop: TrainingLoop
    """What takes the steps; to look at."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """(env_steps, mean reward) of every evaluation so far, this one included."""
    stop_reason: str | None = None
    """Why the run ends before its time, None while it goes on."""

    @property
    def env_steps(self) -> int:
        """Steps taken so far."""
        return self.loop.env_steps

    @property
    def policy(self) -> Policy:
        """A copy of the policy as it is now."""
        from frugalrl.agents.policy import Policy

        return Policy.from_state(self.loop.policy_state())

    def stop(self, reason: str) -> None:
        """End the run here, as if these had been all of its steps."""
        self.stop_reason = reason


class Callback:
    """Does nothing; override what you need. Nothing that is done here changes training.

    Methods are called between two rounds, in the order of the callbacks. `run.stop(reason)` ends
    the run; what they raise ends it too, with the last checkpoint kept.
    """

    def on_metrics(self, run: RunView, row: MetricsRow) -> None:
        """Hear of a row of metrics."""

    def on_evaluation(self, run: RunView, episodes: Episodes) -> None:
        """Hear of an evaluation."""

    def on_checkpoint(self, run: RunView, path: Path) -> None:
        """Hear of a checkpoint."""
