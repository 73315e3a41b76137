"""What a training loop talks to: acts in NumPy, and learns with one of two engines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from frugalrl.agents.policy import ActionScale, Policy
from frugalrl.agents.settings import LOSSES, AgentSettings, check_engine
from frugalrl.agents.state import Floats, Inputs, Spec, initial_state

OU_THETA, OU_TIME_STEP = 0.15, 1e-2  # Ornstein-Uhlenbeck noise: Stable-Baselines3's defaults


class ActionNoise:
    """Noise of a kind ("normal" or "ornstein-uhlenbeck") for actions that span [-1, 1]."""

    def __init__(self, kind: str, std: float, environments: int, action_size: int) -> None:
        self.kind = kind
        self.std = std
        self.value = np.zeros((environments, action_size))

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return the next noise of every environment (n, a)."""
        normal = rng.standard_normal(self.value.shape)
        if self.kind == "normal":
            return (self.std * normal).astype(np.float32)
        drift = OU_THETA * self.value * OU_TIME_STEP
        self.value = self.value - drift + self.std * math.sqrt(OU_TIME_STEP) * normal
        return self.value.astype(np.float32)

    def reset(self, ended: NDArray[np.bool_]) -> None:
        """Start the processes of some environments anew."""
        self.value[ended] = 0.0


class Actions(NamedTuple):
    """The same actions twice: for the environment's ``step``, and for the replay buffer."""

    environment: Floats  # (n, a) in the environment's bounds
    buffer: Floats  # (n, a) within [-1, 1]


@dataclass
class UpdateResult:
    """What updates say about themselves; losses are fetched when they are asked for."""

    names: tuple[str, ...]
    values: Any  # (K, names)
    td_errors: Floats | None
    """Mean absolute temporal-difference errors (K, B); None unless prioritized."""

    @property
    def metrics(self) -> dict[str, float]:
        """Losses and the entropy coefficient, averaged over the updates of the call."""
        means = np.asarray(self.values).mean(0).tolist()
        return dict(zip(self.names, means, strict=True))


class Agent:
    """SAC, TD3 or DDPG; ``make_agent`` is another name for it.

    The replay buffer holds actions within [-1, 1] (``Actions.buffer``), never the environment's.

    Args:
        settings: How to learn and explore.
        observation_space: A flat Box.
        action_space: A bounded flat Box.
        seed: Of everything random here; the same seed gives the same bits.
        environments: How many environments act at once.
    """

    def __init__(
        self,
        settings: AgentSettings,
        observation_space: gymnasium.spaces.Box,
        action_space: gymnasium.spaces.Box,
        seed: int,
        environments: int = 1,
    ) -> None:
        d, a = (int(np.prod(space.shape)) for space in (observation_space, action_space))
        self.spec = Spec(settings, d, a)
        self.settings = settings
        self.environments = environments
        init, explore, learn = np.random.SeedSequence(seed).spawn(3)
        self._explore_rng = np.random.Generator(np.random.SFC64(explore))
        self._learn_rng = np.random.Generator(np.random.SFC64(learn))
        state = initial_state(self.spec, np.random.default_rng(init))
        check_engine(settings.engine)
        # Only the engine that is asked for is imported. Its `state` is a `State` of arrays of its
        # own, good until the next update.
        engine = import_module(f"frugalrl.agents.{settings.engine}.learner")
        self._learner = engine.Learner(self.spec, state)
        scale = ActionScale(action_space.low, action_space.high)
        self._policy = Policy(state.actor, self.spec.actor.sizes, settings.use_sde, scale)
        kind, std = settings.action_noise, settings.action_noise_std
        self._noise = None if kind is None else ActionNoise(kind, std, environments, a)
        # gSDE's exploration matrices (environments, h, a)
        self._matrices = np.zeros((environments, self.spec.latent_size, a), np.float32)
        self._draw_matrices()
        self._rollout_steps = 0

    # Acting

    def act(self, observations: Floats) -> Actions:
        """Return exploring actions for observations (n, d)."""
        self._begin_step()
        outputs, latent = self._policy.forward(np.asarray(observations, np.float32))
        actions = self._policy.mean(outputs)
        if self.settings.use_sde and len(outputs) == 1:
            actions = actions + latent.dot(self._matrices[0])
        elif self.settings.use_sde:
            actions = actions + np.einsum("nh,nha->na", latent, self._matrices)
        elif self.spec.stochastic:
            noise = self._explore_rng.standard_normal(actions.shape, np.float32)
            actions = actions + self._policy.deviation(outputs, latent) * noise
        return self._with_noise(np.tanh(actions))

    def act_random(self, n: int | None = None) -> Actions:
        """Return uniform actions (n, a), with action noise on top, as SB3 warms up."""
        self._begin_step()
        shape = (n or self.environments, self.spec.action_size)
        actions = self._explore_rng.uniform(-1, 1, shape).astype(np.float32)
        return self._with_noise(actions)

    def _with_noise(self, actions: Floats) -> Actions:
        if self._noise is not None:
            actions = np.clip(actions + self._noise.draw(self._explore_rng), -1, 1)
        return Actions(self._policy.scale.to_environment(actions), actions)

    def actor_parameters(self) -> Floats:
        """Copy what ``act`` needs: the actor's flat vector, gSDE's deviations included."""
        return np.array(self._learner.state.actor)

    def act_with(self, parameters: Floats) -> None:
        """Act with these parameters from now on; for agents that never update themselves."""
        if parameters.shape != self._policy.parameters.shape:
            raise ValueError(
                f"parameters has shape {parameters.shape}, not {self._policy.parameters.shape}"
            )
        self._policy.set_parameters(parameters)

    def rollout_started(self) -> None:
        """Begin a block of steps between two updates: gSDE draws new exploration matrices."""
        self._rollout_steps = 0
        self._draw_matrices()

    def _begin_step(self) -> None:
        """Count a step of a rollout, random or not; gSDE's matrices follow this clock."""
        every = self.settings.sde_sample_freq
        if every > 0 and self._rollout_steps and self._rollout_steps % every == 0:
            self._draw_matrices()
        self._rollout_steps += 1

    def _draw_matrices(self) -> None:
        if self.settings.use_sde:
            log_std = self._policy.parameters[self.spec.actor.size :]
            self._matrices = self._explore_rng.standard_normal(self._matrices.shape, np.float32)
            self._matrices *= np.exp(log_std).reshape(self._matrices.shape[1:])

    def episode_ended(self, mask: NDArray[np.bool_]) -> None:
        """Reset the action noise of the environments whose episode ended (n,)."""
        if self._noise is not None:
            self._noise.reset(np.asarray(mask, bool))

    # Learning

    def update(self, batch: Any, progress: float = 1.0) -> UpdateResult:
        """Do K gradient updates in one compiled call.

        Args:
            batch: A ``frugalrl.replay.Batch`` (or what has its attributes) with arrays
                (K, B, ...), or (K, m * B, ...) for the large-batch sampler. Where its ``extra``
                has a ``discount`` (K, B), that weighs the value of what follows instead of gamma:
                gamma^n of returns over n steps.
            progress: Remaining fraction of the run, 1 to 0, for learning-rate schedules.

        Returns:
            Metrics, and TD errors for a prioritized sampler.
        """
        values, errors = self._learner.update(
            self._inputs(batch), self.settings.learning_rate_at(progress)
        )
        self._follow()
        td_errors = np.asarray(errors) if self.settings.sampler == "prioritized" else None
        return UpdateResult(LOSSES[self.settings.algo], values, td_errors)

    def _follow(self) -> None:
        """Act with the learner's newest parameters; those changed in place are viewed already."""
        parameters = np.asarray(self._learner.state.actor)
        if parameters is not self._policy.parameters:
            self._policy.set_parameters(parameters)

    def _inputs(self, batch: Any) -> Inputs:
        """Check a batch and join it with fresh noise."""
        settings, spec, rng = self.settings, self.spec, self._learn_rng
        k, m = batch.rewards.shape
        n = settings.batch_size
        is_large = settings.sampler == "large_batch"
        if is_large and (m % n or m == 0):
            raise ValueError(f"batch of {m} rows is no multiple of {n}")
        if not is_large and m != n:
            raise ValueError(f"batch must have batch_size={n} rows, got {m}")

        def floats(values: Any, *shape: int) -> Floats:
            """Give what K batches of m rows say, as compiled code wants it."""
            return np.asarray(values, np.float32, order="C").reshape(k, m, *shape)

        discount = (getattr(batch, "extra", None) or {}).get("discount", settings.gamma)
        prioritized = settings.sampler == "prioritized"
        noise_rows = spec.latent_size if settings.use_sde else m + n * spec.stochastic
        return Inputs(
            observations=floats(batch.observations, spec.observation_size),
            actions=floats(batch.actions, spec.action_size),
            rewards=floats(batch.rewards),
            next_observations=floats(batch.next_observations, spec.observation_size),
            # Bootstrap through a time limit: only a terminal transition has no future.
            discounts=floats(np.where(batch.terminated, 0, discount)),
            weights=floats(batch.weights) if prioritized else np.ones((k, m), np.float32),
            noise=rng.standard_normal((k, noise_rows, spec.action_size), np.float32),
            uniforms=rng.random((k, settings.critics, n * is_large), np.float32),
        )

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Return all that a bit-exact continuation needs: arrays and JSON values."""
        learned = self._learner.state._asdict()
        return {
            "learner": {name: np.array(one) for name, one in learned.items()},
            "settings": self.settings.to_dict(),
            "explore_rng": _rng_state(self._explore_rng),
            "learn_rng": _rng_state(self._learn_rng),
            "matrices": self._matrices.copy(),
            "rollout_steps": self._rollout_steps,
            "noise": None if self._noise is None else {"value": self._noise.value.copy()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``'s result."""
        if AgentSettings.from_dict(state["settings"]) != self.settings:
            raise ValueError(f"saved agent has other settings: {state['settings']}")
        now = self._learner.state
        saved = type(now)(*(np.asarray(state["learner"][name]) for name in now._fields))
        for name, new, old in zip(now._fields, saved, now, strict=True):
            if new.shape != old.shape:
                raise ValueError(f"saved {name} has shape {new.shape}, not {old.shape}")
        self._learner.load(saved)
        self._follow()
        _set_rng_state(self._explore_rng, state["explore_rng"])
        _set_rng_state(self._learn_rng, state["learn_rng"])
        self._matrices = np.array(state["matrices"], np.float32)
        self._rollout_steps = int(state["rollout_steps"])
        if self._noise is not None:
            value = np.array(state["noise"]["value"], float)
            self._noise.value = value.reshape(self._noise.value.shape)

    def policy_state(self) -> dict[str, Any]:
        """Return what ``frugalrl.agents.policy.Policy.from_state`` needs."""
        return self._policy.state()


def _rng_state(rng: np.random.Generator) -> dict[str, Any]:
    state: Any = rng.bit_generator.state
    words = state["state"]["state"].tolist()
    return {"words": words, "has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}


def _set_rng_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    rng.bit_generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.array(state["words"], np.uint64)},
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


make_agent = Agent
