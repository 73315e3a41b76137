"""The state of an environment, exact to the bit, so that a run can stop in mid-episode.

Four ways, tried in this order by `choose_method`:

- `fields`: every attribute is plain data, arrays, generators or MuJoCo's simulation, all of which
  can be written down and put back. Classic control, MuJoCo and most hand-written environments.
- `replay`: the state cannot be read (Box2D, PyBullet), but the generator's state before the last
  reset and the actions since then lead to it again.
- `renew`: the same, for environments that carry more than a generator from one episode to the
  next (BipedalWalker): a new copy is made for every episode, and the generator handed over.
- `fresh`: nothing reproduces the environment, so resuming begins a new episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from frugalrl.training.environments import Environment, EnvironmentFactory

Method = Literal["fields", "replay", "renew", "fresh"]
State = dict[str, Any]

_PLAIN = (bool, int, float, str, type(None))
# What an environment holds that does not change, or that only matters for pictures.
_CONSTANT = frozenset(
    (
        *("spec", "metadata", "mujoco_renderer", "_cached_spec", "_saved_kwargs"),
        *("_ezpickle_args", "_ezpickle_kwargs"),
    )
)


class UnreadableStateError(TypeError):
    """An environment holds something that cannot be written down."""


class ActionRecorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers how the current episode came about: the generator, then the actions.

    Args:
        factory: makes the environment.
        renew: whether to make it anew for every episode.
    """

    def __init__(self, factory: EnvironmentFactory, *, renew: bool = False) -> None:
        super().__init__(factory.make())
        self.factory = factory
        self.renew = renew
        self.start: State = {}
        self.actions: list[np.ndarray[Any, Any]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode and a new record."""
        if seed is None:
            self.start = generator_state(self.unwrapped.np_random)
        else:
            self.start = generator_state(gymnasium.utils.seeding.np_random(seed)[0])
        self.actions = []
        if self.renew:
            self.env.close()
            self.env = self.factory.make()
            _set_generator(self.env, self.start)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and remember the action."""
        self.actions.append(np.array(action))
        return cast("tuple[Any, Any, bool, bool, dict[str, Any]]", self.env.step(action))


def generator_state(generator: np.random.Generator) -> State:
    """Write a generator's state down as JSON values and arrays."""
    return cast("State", _encode(generator.bit_generator.state, "generator"))


def restore_generator(state: State) -> np.random.Generator:
    """Make the generator that `generator_state` wrote down."""
    content = cast("dict[str, Any]", _decode(state))
    bits = getattr(np.random, str(content["bit_generator"]))()
    bits.state = content
    return np.random.Generator(bits)


def prepare(factory: EnvironmentFactory, method: Method) -> Environment:
    """Make an environment whose state `capture` can read by this method."""
    if method in ("replay", "renew"):
        return ActionRecorder(factory, renew=method == "renew")
    return factory.make()


def capture(environment: Environment, method: Method) -> State:
    """Write an environment's state down.

    Raises:
        UnreadableStateError: for `fields`, when an attribute is not plain data.
    """
    if method in ("replay", "renew"):
        recorder = cast("ActionRecorder", environment)
        shape = cast("spaces.Box", environment.action_space).shape
        actions = np.array(recorder.actions).reshape((len(recorder.actions), *shape))
        return {"start": recorder.start, "actions": actions}
    if method == "fresh":
        return {"start": generator_state(environment.unwrapped.np_random)}
    layers = [_capture_attributes(layer) for layer in _layers(environment)]
    state: State = {"layers": layers}
    simulation = _simulation(environment)
    if simulation is not None:
        state["mujoco"] = _capture_simulation(*simulation)
    return state


def restore(environment: Environment, state: State, method: Method) -> Any:
    """Put an environment, fresh from `prepare`, into a captured state.

    Returns:
        The observation after a replay or a fresh reset, None for `fields`.
    """
    if method == "fields":
        # The first reset lets an environment build whatever it builds lazily.
        environment.reset()
        for layer, attributes in zip(_layers(environment), state["layers"], strict=True):
            _restore_attributes(layer, attributes)
        simulation = _simulation(environment)
        if simulation is not None:
            _restore_simulation(*simulation, state["mujoco"])
        return None
    # A simulator's first reset may load files where later ones only rewind.
    environment.reset()
    _set_generator(environment, state["start"])
    observation, _ = environment.reset()
    for action in state.get("actions", ()):
        observation, *_ = environment.step(action)
    return observation


def choose_method(factory: EnvironmentFactory) -> Method:
    """Find the first way that reproduces this environment bit for bit, by trying it."""
    if _reproduces(factory, "fields", seed=0, steps=24):
        return "fields"
    # What a simulator carries over shows late, and not in every episode.
    methods: tuple[Method, ...] = ("replay", "renew")
    for method in methods:
        if all(_reproduces(factory, method, seed, steps=250) for seed in range(2)):
            return method
    return "fresh"


def _reproduces(factory: EnvironmentFactory, method: Method, seed: int, steps: int) -> bool:
    original, copy = prepare(factory, method), prepare(factory, method)
    try:
        space = cast("spaces.Box", original.action_space)
        generator = np.random.default_rng(seed)

        def act() -> np.ndarray[Any, Any]:
            return generator.uniform(space.low, space.high).astype(space.dtype)

        original.reset(seed=seed)
        # Two episodes, so that the generator has moved on when the state is captured.
        for _ in range(2):
            for _ in range(steps):
                *_, terminated, truncated, _ = original.step(act())
                if terminated or truncated:
                    original.reset()
            original.reset()
        for _ in range(steps // 2):
            if _over(original.step(act())):
                original.reset()
        try:
            state = capture(original, method)
            restore(copy, state, method)
        except (UnreadableStateError, AttributeError, TypeError, ValueError):
            return False
        for _ in range(steps):
            action = act()
            ours, theirs = original.step(action), copy.step(action)
            if not _same(ours[:4], theirs[:4]):
                return False
            if _over(ours) and not _same(original.reset()[0], copy.reset()[0]):
                return False
        return _same(original.reset()[0], copy.reset()[0])
    finally:
        original.close()
        copy.close()


def _set_generator(environment: Environment, state: State) -> None:
    """Set the generator in place, because parts of an environment may share it."""
    environment.unwrapped.np_random.bit_generator.state = _decode(state)


def _over(result: tuple[Any, ...]) -> bool:
    return bool(result[2] or result[3])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()


def _layers(environment: Environment) -> Iterator[Environment]:
    """Walk from the outermost wrapper to the environment itself."""
    while isinstance(environment, gymnasium.Wrapper):
        yield environment
        environment = environment.env
    yield environment


def _simulation(environment: Environment) -> tuple[Any, Any] | None:
    inner = environment.unwrapped
    model, data = getattr(inner, "model", None), getattr(inner, "data", None)
    if type(model).__name__ == "MjModel" and type(data).__name__ == "MjData":
        return model, data
    return None


def _capture_simulation(model: Any, data: Any) -> State:
    """Write down MuJoCo's integration state, and the quantities derived from it.

    The integration state with its warm start is what the next step starts from. Rewards however
    are also computed from positions of bodies and the like, which lag one substep behind it and
    cannot be computed again from it.
    """
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    return {
        "integration": state,
        "derived": {name: array.copy() for name, array in _derived(data) if array.size},
    }


def _restore_simulation(model: Any, data: Any, state: State) -> None:
    import mujoco

    # Solver output of the throw-away reset would otherwise stay where sizes differ.
    mujoco.mj_resetData(model, data)
    mujoco.mj_setState(model, data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, array in _derived(data):
        saved = state["derived"].get(name)
        # Arrays of contacts have the size of the last step's; the next step makes them anew.
        if saved is not None and saved.shape == array.shape:
            array[...] = saved


def _derived(data: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for name in dir(data):
        if not name.startswith("_"):
            value = getattr(data, name)
            if (
                isinstance(value, np.ndarray)
                and value.flags.writeable
                and value.dtype.kind in "fib"
            ):
                yield name, value


def _capture_attributes(layer: Environment) -> State:
    attributes: State = {}
    for name, value in vars(layer).items():
        if name in _CONSTANT or isinstance(value, (spaces.Space, EnvSpec, gymnasium.Env)):
            continue
        if type(value).__name__ in ("MjModel", "MjData"):
            continue
        attributes[name] = _encode(value, f"{type(layer).__name__}.{name}")
    return attributes


def _restore_attributes(layer: Environment, attributes: State) -> None:
    for name, encoded in attributes.items():
        setattr(layer, name, _decode(encoded))


def _encode(value: Any, path: str) -> Any:
    """Turn plain data into arrays and JSON values that keep its exact types."""
    if isinstance(value, np.random.Generator):
        return {"generator": generator_state(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUSV":
            raise UnreadableStateError(f"{path} is an array of {value.dtype}")
        return {"array": value.copy()}
    if isinstance(value, np.generic):
        return {"scalar": np.array(value)}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise UnreadableStateError(f"{path} has keys that are not text")
        return {"dict": {key: _encode(item, f"{path}[{key!r}]") for key, item in value.items()}}
    if type(value) in (list, tuple):
        items = [_encode(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return {type(value).__name__: items}
    if type(value) in _PLAIN:
        return {"value": value}
    raise UnreadableStateError(f"{path} is a {type(value).__name__}")


def _decode(encoded: Any) -> Any:
    """Give back what `_encode` wrote down."""
    ((kind, content),) = encoded.items()
    if kind == "generator":
        return restore_generator(content)
    if kind == "array":
        return content.copy()
    if kind == "scalar":
        return content[()]
    if kind == "dict":
        return {key: _decode(item) for key, item in content.items()}
    if kind in ("list", "tuple"):
        items = [_decode(item) for item in content]
        return items if kind == "list" else tuple(items)
    return content
