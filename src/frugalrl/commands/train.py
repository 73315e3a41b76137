"""frugalrl train: train a controller, or resume a run."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import tyro

from frugalrl.commands.arguments import REGISTRY, parse
from frugalrl.training.config import Algo, TrainConfig, concerns
from frugalrl.training.errors import ConfigError
from frugalrl.training.process import limit_threads

_SWITCHES = {"--use-sde": "True", "--no-use-sde": "False"}


@dataclass(frozen=True)
class Arguments(TrainConfig):
    """Train a controller with SAC, TD3 or DDPG.

      frugalrl train Hopper-v5 --algo sac --admission fac --steps 300000 --seed 0 --out runs/hopper
      frugalrl train --resume runs/hopper                go on where it stopped, to the same bits
      frugalrl train --resume runs/hopper --steps 1e6    prolong it
      frugalrl train Humanoid-v5 --admission fac --actors 8 --edge-filter

    Ctrl-C saves the run and stops. Presets are settings made for an environment (frugalrl presets);
    what they leave open is as in Stable-Baselines3.
    """

    env: Annotated[str, tyro.conf.arg(metavar="ENV")]
    actors: int = 0
    """Ray processes that step environments (--envs each) for one learner; 0: no Ray."""
    address: str | None = None
    """With --actors: the cluster's head, host:port or auto; None: a Ray on this machine."""
    edge_filter: bool = False
    """With --actors: they keep back what the learner's filter would likely not keep."""


@dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run, or prolong one. Its other settings stay."""

    resume: Path
    """Run directory."""
    steps: int | None = None
    """Train for so many steps in all; prolongs a finished run too."""
    quiet: bool = False
    """Print nothing but errors."""
    address: str | None = None
    """Of a run with actors: the Ray cluster; None: a Ray on this machine."""


def main(arguments: list[str]) -> int:
    """Train or resume."""
    if not arguments:
        raise ConfigError(
            "which environment? For example: frugalrl train Pendulum-v1 --admission fac "
            "(frugalrl train --help lists all settings)"
        )
    if any(word.partition("=")[0] == "--resume" for word in arguments):
        if not arguments[0].startswith("-"):
            raise ConfigError(
                f"--resume goes on with a run whose environment is known: leave {arguments[0]} out"
            )
        return _resume(arguments)
    asks = any(word in ("-h", "--help") for word in arguments)
    kind = _with_real_defaults() if asks else Arguments
    parsed = parse(kind, _with_values(arguments), "train")
    config = TrainConfig(
        **{field.name: getattr(parsed, field.name) for field in fields(TrainConfig)}
    )
    # Before NumPy loads (and JAX, with that engine): they read their thread counts once.
    limit_threads(config.threads)
    from frugalrl.training.runner import train

    if config.out is None:
        env = config.env_name.replace("/", "-").replace(":", "-")
        name = f"{env}-{config.algo}-{config.admission}-seed{config.seed}"
        config = replace(config, out=Path("runs", name))
    if parsed.actors < 0:
        raise ConfigError(f"--actors {parsed.actors} must be at least 1, or 0 for a run without")
    if not parsed.actors and (parsed.address is not None or parsed.edge_filter):
        given = "--edge-filter" if parsed.edge_filter else f"--address {parsed.address}"
        raise ConfigError(f"{given} has no effect without actors; add --actors N")
    if parsed.actors:
        from frugalrl.distributed.fleet import ActorSettings
        from frugalrl.distributed.training import train as train_with_actors

        settings = ActorSettings(parsed.actors, edge_filter=parsed.edge_filter)
        train_with_actors(config, settings, address=parsed.address, say=print)
    else:
        train(config, say=print)
    return 0


def _with_real_defaults() -> type[Arguments]:
    """Let the help say what a setting becomes that is left open."""
    from frugalrl.admission.frugal import FrugalFilter
    from frugalrl.training.presets import defaults

    texts = {field.name: "not set" for field in fields(Arguments) if field.default is None}
    texts["out"] = "runs/ENV-ALGO-ADMISSION-seedSEED"
    texts["steps"] = "the preset's"
    texts["eval_every"] = "a twentieth of the run, at least 1000"
    for name in defaults("sac"):
        algorithms: dict[str, list[str]] = {}
        for algo in get_args(Algo):
            if concerns(algo, name):
                algorithms.setdefault(_text(defaults(algo)[name]), []).append(algo)
        values = list(algorithms)
        if len(values) > 1:
            values = [f"{value} ({', '.join(of)})" for value, of in algorithms.items()]
        texts[name] = f"preset, else {', '.join(values)}"
    for name, value in FrugalFilter().state_dict()["settings"].items():
        if f"fac_{name}" in texts:
            texts[f"fac_{name}"] = _text(value)
    hints = get_type_hints(Arguments, include_extras=True)
    changed: list[tuple[str, Any, Any]] = []
    for name, text in texts.items():
        hint = tyro.conf.arg(help_behavior_hint=f"(default: {text})")
        changed.append((name, Annotated[hints[name], hint], None))
    told = {"__doc__": Arguments.__doc__}
    return make_dataclass("Arguments", changed, bases=(Arguments,), namespace=told, frozen=True)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _with_values(arguments: list[str]) -> list[str]:
    """Let --use-sde and --no-use-sde stand alone, like the switches that cannot be None."""
    words: list[str] = []
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word in _SWITCHES and following not in ("True", "False", "None"):
            words += ["--use-sde", _SWITCHES[word]]
        else:
            words.append(word)
    return words


def _resume(arguments: list[str]) -> int:
    known = [f"--{field.name}" for field in fields(Resume)]
    for word in (argument.partition("=")[0] for argument in arguments):
        if word.startswith("--") and word not in (*known, "--help"):
            raise ConfigError(
                f"{word} does not go with --resume: a run keeps its settings; what can be given "
                f"is {', '.join(known[1:])}"
            )
    options = tyro.cli(Resume, args=arguments, prog="frugalrl train", registry=REGISTRY)
    from frugalrl.training.run_directory import RunDirectory

    directory = RunDirectory(options.resume)
    config, content = directory.read_config()
    limit_threads(config.threads)
    if directory.finished and options.steps is None:
        print(f"{options.resume} is finished already; evaluate it with: ")
        print(f"  frugalrl eval {options.resume}")
        print(f"or prolong it with: frugalrl train --resume {options.resume} --steps N")
        return 0
    talk: dict[str, Any] = {"progress": False} if options.quiet else {"say": print}
    if "actors" in content:
        from frugalrl.distributed.training import resume as resume_with_actors

        resume_with_actors(options.resume, steps=options.steps, address=options.address, **talk)
    else:
        from frugalrl.training.runner import resume

        resume(options.resume, steps=options.steps, **talk)
    return 0
