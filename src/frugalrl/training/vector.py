"""One environment or many, here or in worker processes, behind one way of stepping them."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from frugalrl.training import env_state, environments
from frugalrl.training.environments import EnvironmentFactory
from frugalrl.training.errors import BrokenEnvironmentError
from frugalrl.training.process import die_with
from frugalrl.training.run_directory import StateMethod

Floats = NDArray[np.float32]


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
    successes: list[float]
    """1 or 0 for each episode that ended and said whether it was a success (`is_success`)."""


class SyncGroup:
    """n copies of one environment, stepped one after another in this process.

    Each is reset as soon as its episode ends.
    """

    def __init__(self, factory: EnvironmentFactory, count: int, method: StateMethod) -> None:
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
        final = np.empty(self._shape, dtype=np.float32)
        current = np.empty(self._shape, dtype=np.float32)
        rewards = np.empty(self.count)
        terminated = np.empty(self.count, dtype=np.bool_)
        truncated = np.empty(self.count, dtype=np.bool_)
        any_ended, successes = False, []
        for row, environment in enumerate(self._environments):
            # A copy, because an environment may change its action and the buffer takes it too.
            observation, rewards[row], terminated[row], truncated[row], info = environments.step(
                environment, actions[row].copy(), self._shape[1:]
            )
            final[row] = observation
            if terminated[row] or truncated[row]:
                any_ended = True
                if "is_success" in info:
                    successes.append(float(info["is_success"]))
                observation = environments.reset(environment, self._shape[1:])
            current[row] = observation
        return Step(final, rewards, terminated, truncated, current, any_ended, successes)

    def capture(self) -> list[env_state.EnvState]:
        """Write every environment's state down."""
        return [env_state.capture(env, self._method) for env in self._environments]

    def restore(
        self, states: list[env_state.EnvState], seeds: Sequence[int]
    ) -> list[env_state.Restored]:
        """Put every environment into a captured state, or begin a new episode with its seed."""
        rows = zip(self._environments, states, seeds, strict=True)
        return [env_state.restore(*row) for row in rows]

    def close(self) -> None:
        """Release the environments."""
        for environment in self._environments:
            environment.close()


class AsyncGroup:
    """The same with each environment in a worker process, with tracebacks and a time-out.

    A worker holds a group of one environment and is told which of its methods to call. One that is
    silent for `timeout` seconds counts as hanging.
    """

    def __init__(
        self, factory: EnvironmentFactory, count: int, method: StateMethod, timeout: float = 60.0
    ) -> None:
        self.count = count
        self._timeout = timeout
        self.processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._stacks: list[Connection] = []
        make = CloudpickleWrapper(partial(SyncGroup, factory, 1, method))  # type: ignore[type-var]
        # Forking a process that runs threads can deadlock, so workers are spawned.
        context = multiprocessing.get_context("spawn")
        try:
            for _ in range(count):
                pipe, its_pipe = context.Pipe()
                stack, its_stack = context.Pipe(duplex=False)
                arguments = (os.getpid(), its_pipe, its_stack, make)
                process = context.Process(target=_work, args=arguments, daemon=True)
                self.processes.append(process)
                self._pipes.append(pipe)
                self._stacks.append(stack)
                with _signals_held():
                    process.start()
                its_pipe.close()
                its_stack.close()
            for pipe in self._pipes:
                pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.close()
            raise BrokenEnvironmentError(
                "an environment worker died while starting; its own message is above. "
                "A script that trains with workers='async' must do so under "
                "`if __name__ == '__main__':`"
            ) from error

    def reset(self, seeds: Sequence[int]) -> Floats:
        """Begin the first episodes."""
        return np.concatenate(self._call("reset", [([seed],) for seed in seeds]))

    def step(self, actions: Floats) -> Step:
        """Take (n, a) actions."""
        steps = self._call("step", [(action[None],) for action in actions])
        arrays = map(np.concatenate, zip(*(step[:5] for step in steps), strict=True))
        successes = [success for step in steps for success in step.successes]
        return Step._make((*arrays, any(step.any_ended for step in steps), successes))

    def capture(self) -> list[env_state.EnvState]:
        """Write every environment's state down."""
        return [state for (state,) in self._call("capture", [()] * self.count)]

    def restore(
        self, states: list[env_state.EnvState], seeds: Sequence[int]
    ) -> list[env_state.Restored]:
        """Put every environment into a captured state, or begin a new episode with its seed."""
        rows = [([state], [seed]) for state, seed in zip(states, seeds, strict=True)]
        return [restored for (restored,) in self._call("restore", rows)]

    def close(self) -> None:
        """End the workers, whatever state they are in."""
        for process in self.processes:
            if process.pid is not None:  # else it never started
                process.kill()
                process.join()
        for pipe in (*self._pipes, *self._stacks):
            pipe.close()

    def _call(self, method: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Let every worker call a method of its group, each with its own arguments."""
        deadline = time.monotonic() + self._timeout
        answers = []
        try:
            for pipe, arguments in zip(self._pipes, rows, strict=True):
                pipe.send((method, arguments))
            for row, pipe in enumerate(self._pipes):
                if not pipe.poll(max(0.0, deadline - time.monotonic())):
                    raise self._hang()
                answer, problem = pipe.recv()
                if problem is not None:
                    self.close()
                    raise BrokenEnvironmentError(f"environment worker {row} raised:\n{problem}")
                answers.append(answer)
        except (EOFError, ConnectionError) as error:
            time.sleep(0.1)
            ends = [
                f"worker {row} ended with exit code {process.exitcode}"
                for row, process in enumerate(self.processes)
                if not process.is_alive()
            ]
            self.close()
            told = f"an environment worker died: {'; '.join(ends)}"
            raise BrokenEnvironmentError(told) from error
        return answers

    def _hang(self) -> BrokenEnvironmentError:
        """Ask the silent workers where they are, then end all of them."""
        silent = [row for row, pipe in enumerate(self._pipes) if not pipe.poll()]
        for row in silent if hasattr(faulthandler, "register") else ():
            with contextlib.suppress(OSError):
                os.kill(self.processes[row].pid, signal.SIGUSR1)
        time.sleep(0.2)
        where = [f"worker {row} was here:\n{_read(self._stacks[row])}" for row in silent]
        self.close()
        return BrokenEnvironmentError(
            f"environment worker {', '.join(map(str, silent))} gave no answer within "
            f"{self._timeout:g} s (worker_timeout); " + "\n".join(where)
        )


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let what is started here hear of no SIGINT or SIGTERM: the main process decides for it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which lets them through again when it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(parent: int, pipe: Connection, stack: Connection, make: Any) -> None:
    """Do as the main process says, from the first call on with a group of environments."""
    # A worker that hangs hears nothing of its parent's end.
    die_with(parent, signal.SIGKILL)
    # Ctrl-C reaches the whole group; the main process decides what it means.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=stack.fileno(), all_threads=False)
    pipe.send("ready")
    group: Any = None
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        answer = problem = None
        try:
            group = group or make()
            answer = getattr(group, method)(*arguments)
        except Exception:
            problem = traceback.format_exc()
        pipe.send((answer, problem))


def _read(stack: Connection) -> str:
    """Give what the fault handler has written to a pipe."""
    told = os.read(stack.fileno(), 100_000) if stack.poll() else b""
    return told.decode(errors="replace").rstrip() or "(unknown)"


EnvironmentGroup = SyncGroup | AsyncGroup
