"""What a run calls as it goes: after rows of metrics, evaluations and checkpoints."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frugalrl.training.evaluation import save_policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from frugalrl.agents.policy import Policy
    from frugalrl.training.config import TrainConfig
    from frugalrl.training.evaluation import Episodes
    from frugalrl.training.records import Row


@dataclass
class RunView:
    """What a callback sees of a run, and how it ends it."""

    config: TrainConfig
    """As resolved."""
    directory: Path | None
    """Where files go, None for a run that leaves none."""
    policy_state: Callable[[], Any]
    env_steps: int = 0
    """Steps taken so far."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """(env_steps, mean reward) of every evaluation so far, this one included."""
    stop_reason: str | None = None
    """Why the run ends before its time, None while it goes on."""

    @property
    def policy(self) -> Policy:
        """A copy of the policy as it is now."""
        from frugalrl.agents.policy import Policy

        return Policy.from_state(self.policy_state())

    def stop(self, reason: str) -> None:
        """End the run here, as if these had been all of its steps."""
        self.stop_reason = reason


class Callback:
    """Does nothing; override what you need. Nothing that is done here changes training.

    Methods are called between two rounds, in the order of the callbacks. `run.stop(reason)` ends
    the run; what they raise ends it too, with the last checkpoint kept.
    """

    def on_metrics(self, run: RunView, row: Row) -> None:
        """Hear of a row of metrics."""

    def on_evaluation(self, run: RunView, episodes: Episodes) -> None:
        """Hear of an evaluation."""

    def on_checkpoint(self, run: RunView, path: Path) -> None:
        """Hear of a checkpoint."""


class KeepBest(Callback):
    """Keeps the policy of the best evaluation as `policy-best.safetensors`."""

    def on_evaluation(self, run: RunView, episodes: Episodes) -> None:
        """Write the policy if no evaluation was better."""
        *before, (_, mean) = run.evaluations
        if run.directory is not None and all(mean > other for _, other in before):
            save_policy(run.directory / "policy-best.safetensors", run.policy_state())


class StopAtReward(Callback):
    """Ends the run when the mean reward of an evaluation reaches a value."""

    def __init__(self, reward: float) -> None:
        self.reward = reward

    def on_evaluation(self, run: RunView, episodes: Episodes) -> None:
        """Stop if the reward is reached."""
        if episodes.mean >= self.reward:
            run.stop(f"the mean reward {episodes.mean:,.2f} has reached {self.reward:,g}")


class StopAfter(Callback):
    """Ends the run after so many seconds of this process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun = time.monotonic()

    def on_metrics(self, run: RunView, row: Row) -> None:
        """Stop if the time is over."""
        if time.monotonic() - self._begun >= self.seconds:
            run.stop(f"{self.seconds:,g} seconds have passed")


def built_in(config: TrainConfig) -> list[Callback]:
    """Make the callbacks that a configuration asks for."""
    made: list[Callback] = [KeepBest()] if config.save_best else []
    if config.stop_reward is not None:
        made.append(StopAtReward(config.stop_reward))
    if config.stop_seconds is not None:
        made.append(StopAfter(config.stop_seconds))
    return made
