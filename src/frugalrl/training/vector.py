"""One environment or many, here or in worker processes, behind one way of stepping them."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from numpy.typing import NDArray

from frugalrl.training import env_state, environments
from frugalrl.training.environments import Environment, EnvironmentFactory
from frugalrl.training.errors import BrokenEnvironmentError
from frugalrl.training.process import die_with
from frugalrl.training.run_directory import Method

Floats = NDArray[np.float32]

_FOLDER = "frugalrl-workers-"
_FALSE = np.zeros(1, dtype=np.bool_)
_FALSE.flags.writeable = False


class Step(NamedTuple):
    """What one step of n environments gave."""

    next_observations: Floats
    """(n, d) where the actions led: at an episode's end its true last observation."""
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    observations: Floats
    """(n, d) what to act on next: after an episode's end the new episode's first observation."""
    any_ended: bool
    """Whether any episode ended."""
    successes: Sequence[float] = ()
    """1 or 0 for each episode that ended and said whether it was a success (`is_success`)."""


class SyncGroup:
    """n copies of one environment, stepped one after another in this process.

    Each is reset as soon as its episode ends.
    """

    def __init__(self, factory: EnvironmentFactory, count: int, method: Method) -> None:
        self.count = count
        self._method = method
        self._environments = [env_state.prepare(factory, method) for _ in range(count)]
        self.observation_space = cast("spaces.Box", self._environments[0].observation_space)
        self.action_space = cast("spaces.Box", self._environments[0].action_space)
        self._shape = (count, *self.observation_space.shape)

    def reset(self, seeds: Sequence[int]) -> Floats:
        """Begin the first episodes."""
        pairs = zip(self._environments, seeds, strict=True)
        rows = [environments.reset(env, self._shape[1:], seed) for env, seed in pairs]
        return np.array(rows, dtype=np.float32)

    def step(self, actions: Floats) -> Step:
        """Take (n, a) actions."""
        if self.count == 1:
            return self._step_one(actions[0])
        final = np.empty(self._shape, dtype=np.float32)
        current = np.empty(self._shape, dtype=np.float32)
        rewards = np.empty(self.count)
        terminated = np.empty(self.count, dtype=np.bool_)
        truncated = np.empty(self.count, dtype=np.bool_)
        successes: list[float] = []
        for row, environment in enumerate(self._environments):
            observation, rewards[row], terminated[row], truncated[row], info = environments.step(
                environment, actions[row].copy(), self._shape[1:]
            )
            final[row] = observation
            if terminated[row] or truncated[row]:
                successes += environments.success(info)
                observation = environments.reset(environment, self._shape[1:])
            current[row] = observation
        ended = bool((terminated | truncated).any())
        return Step(final, rewards, terminated, truncated, current, ended, successes)

    def _step_one(self, action: Floats) -> Step:
        """Do the same for a single environment, without the loop's cost."""
        environment = self._environments[0]
        # A copy, because an environment may change its action and the buffer takes the same one.
        observation, reward, terminated, truncated, info = environments.step(
            environment, action.copy(), self._shape[1:]
        )
        final = current = np.array(observation, dtype=np.float32, ndmin=2)
        rewards = np.array((reward,), dtype=np.float64)
        if not (terminated or truncated):
            return Step(final, rewards, _FALSE, _FALSE, current, False)
        observation = environments.reset(environment, self._shape[1:])
        current = np.array(observation, dtype=np.float32, ndmin=2)
        ends = np.array(((terminated,), (truncated,)), dtype=np.bool_)
        return Step(final, rewards, ends[0], ends[1], current, True, environments.success(info))

    def capture(self) -> list[env_state.State]:
        """Write every environment's state down."""
        return [env_state.capture(env, self._method) for env in self._environments]

    def restore(
        self, states: list[env_state.State], seeds: Sequence[int]
    ) -> list[env_state.Restored]:
        """Put every environment into a captured state, or begin a new episode with its seed."""
        rows = zip(self._environments, states, seeds, strict=True)
        return [env_state.restore(*row) for row in rows]

    def close(self) -> None:
        """Release the environments."""
        for environment in self._environments:
            environment.close()


class AsyncGroup:
    """The same in worker processes, with tracebacks and a time-out.

    Args:
        factory: makes the environments, in the workers.
        count: how many.
        method: how their states are captured.
        timeout: seconds after which a silent worker counts as hanging.
    """

    def __init__(
        self,
        factory: EnvironmentFactory,
        count: int,
        method: Method,
        timeout: float = 60.0,
    ) -> None:
        self.count = count
        self._timeout = timeout
        _delete_folders_of_the_dead()
        self._stacks = tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-")
        stacks = Path(self._stacks.name)
        template = factory.make()
        kinds = (template.observation_space, template.action_space)
        template.close()
        makers = [
            partial(_make_worker, os.getpid(), factory, method, i, stacks / str(i), kinds)
            for i in range(count)
        ]
        try:
            # Forking a process that runs threads can deadlock, so workers are spawned.
            self._vector = AsyncVectorEnv(
                makers, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP
            )
        except (EOFError, ConnectionError) as error:
            raise BrokenEnvironmentError(
                "an environment worker died while starting; its own message is above. "
                "A script that trains with workers='async' must do so under "
                "`if __name__ == '__main__':`"
            ) from error
        self.observation_space = cast("spaces.Box", self._vector.single_observation_space)
        self.action_space = cast("spaces.Box", self._vector.single_action_space)

    def reset(self, seeds: Sequence[int]) -> Floats:
        """Begin the first episodes."""
        self._vector.reset_async(seed=list(seeds))
        observations, _ = self._wait(self._vector.reset_wait)
        return np.array(observations, dtype=np.float32)

    def step(self, actions: Floats) -> Step:
        """Take (n, a) actions."""
        try:
            self._vector.step_async(actions)
        except (BrokenPipeError, ConnectionError, AttributeError) as error:
            raise self._crash() from error
        result = self._wait(self._vector.step_wait)
        observations, rewards, terminated, truncated, infos = result
        current = np.array(observations, dtype=np.float32)
        ended = terminated | truncated
        if not ended.any():
            return Step(current, rewards, terminated, truncated, current, False)
        final = current.copy()
        for row in np.flatnonzero(ended):
            final[row] = infos["final_obs"][row]
        told = infos.get("final_info", {})
        said = "is_success" in told
        successes = told["is_success"][told["_is_success"]].tolist() if said else ()
        return Step(final, rewards, terminated, truncated, current, True, successes)

    def capture(self) -> list[env_state.State]:
        """Write every environment's state down."""
        self._vector.call_async("capture_state")
        return list(self._wait(self._vector.call_wait))

    def restore(
        self, states: list[env_state.State], seeds: Sequence[int]
    ) -> list[env_state.Restored]:
        """Put every environment into a captured state, or begin a new episode with its seed."""
        self._vector.call_async("restore_state", list(zip(states, seeds, strict=True)))
        return list(self._wait(self._vector.call_wait))

    def close(self) -> None:
        """End the workers, whatever state they are in."""
        # Gymnasium's own way waits for answers that a dead or hanging worker never gives.
        for process in self._vector.processes:
            process.kill()
        for process in self._vector.processes:
            process.join()
        for pipe in self._vector.parent_pipes:
            if pipe is not None:
                pipe.close()
        self._vector.closed = True
        self._stacks.cleanup()

    def _wait(self, wait: Any) -> Any:
        try:
            with warnings.catch_warnings():
                # Gymnasium warns of what the exception says, once per worker.
                warnings.simplefilter("ignore")
                return wait(timeout=self._timeout)
        except multiprocessing.TimeoutError as error:
            raise self._hang() from error
        except (EOFError, ConnectionError) as error:
            raise self._crash() from error
        except BrokenEnvironmentError:
            self.close()
            raise

    def _hang(self) -> BrokenEnvironmentError:
        """Ask the silent workers where they are, then end all of them."""
        pipes = self._vector.parent_pipes
        silent = [row for row, pipe in enumerate(pipes) if pipe is None or not pipe.poll(0)]
        for row in silent:
            process = self._vector.processes[row].pid
            if process is not None and hasattr(faulthandler, "register"):
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGUSR1)
        time.sleep(0.2)
        stacks = [_read(Path(self._stacks.name) / str(row)) for row in silent]
        self.close()
        where = "\n".join(
            f"worker {row} was here:\n{stack}" for row, stack in zip(silent, stacks, strict=True)
        )
        return BrokenEnvironmentError(
            f"environment worker {', '.join(map(str, silent))} gave no answer within "
            f"{self._timeout:g} s (worker_timeout); {where}"
        )

    def _crash(self) -> BrokenEnvironmentError:
        time.sleep(0.1)
        ends = [
            f"worker {row} ended with exit code {process.exitcode}"
            for row, process in enumerate(self._vector.processes)
            if not process.is_alive()
        ]
        self.close()
        return BrokenEnvironmentError(f"an environment worker died: {'; '.join(ends)}")


def _make_worker(parent: int, *arguments: Any) -> Environment:
    """Make what stands for the environment inside a worker."""
    if os.getpid() != parent:
        # A worker that hangs hears nothing of its parent's end.
        die_with(parent, signal.SIGKILL)
    return _Worker(*arguments)


class _Worker(gymnasium.Env[Any, Any]):
    """What a worker steps: full tracebacks, state, no infos to send.

    The environment is made when it is first reset, so that a constructor that hangs or raises is
    told of like a step that does.
    """

    def __init__(
        self,
        factory: EnvironmentFactory,
        method: Method,
        index: int,
        stack: Path,
        kinds: tuple[spaces.Space[Any], spaces.Space[Any]],
    ) -> None:
        self._factory = factory
        self._method = method
        self._index = index
        self._stack = stack
        self.observation_space, self.action_space = kinds
        self._made: Environment | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        with self._told_in_full():
            return environments.reset(self._environment(), self._shape, seed), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self._told_in_full():
            observation, reward, terminated, truncated, info = environments.step(
                self._environment(), action, self._shape
            )
        told = environments.success(info) if terminated or truncated else []
        return observation, reward, terminated, truncated, {"is_success": told[0]} if told else {}

    def capture_state(self) -> env_state.State:
        return env_state.capture(self._environment(), self._method)

    def restore_state(self, states: list[tuple[env_state.State, int]]) -> env_state.Restored:
        with self._told_in_full():
            return env_state.restore(self._environment(), *states[self._index])

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    @property
    def _shape(self) -> tuple[int, ...]:
        return cast("spaces.Box", self.observation_space).shape

    def _environment(self) -> Environment:
        if self._made is None:
            # Ctrl-C reaches the whole group; the main process decides what it means.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if hasattr(faulthandler, "register"):
                faulthandler.register(signal.SIGUSR1, file=self._stack.open("w"), all_threads=False)
            self._made = env_state.prepare(self._factory, self._method)
        return self._made

    @contextlib.contextmanager
    def _told_in_full(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            raise BrokenEnvironmentError(
                f"environment worker {self._index} raised:\n{traceback.format_exc()}"
            ) from None


EnvironmentGroup = SyncGroup | AsyncGroup


def _delete_folders_of_the_dead() -> None:
    """Delete what processes that were killed have left of their workers."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # another user's, or not ours at all


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").rstrip() or "(unknown)"
    except OSError:
        return "(unknown)"
