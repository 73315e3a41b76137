"""frugalrl eval: evaluate a trained policy, or film it."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from frugalrl.commands.arguments import parse
from frugalrl.training.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Evaluate the policy of a run, without exploration, one seed per episode."""

    run: Path
    """Run directory."""
    episodes: int = 100
    """Episodes, each with its own seed."""
    seed: int = 1_000_000
    """Seed of the first episode; the default gives the episodes of the run's own evaluation."""
    video: Path | None = None
    """Film the first episodes to this file: .mp4 or .gif."""
    video_episodes: int = 1
    """How many episodes to film."""
    stochastic: bool = False
    """Draw SAC's actions from its distribution instead of taking its mean."""
    json: Path | None = None
    """Write the episodes to this file."""


def main(arguments: list[str]) -> int:
    """Evaluate."""
    options = parse(Options, arguments, "eval")
    for name, least in (("episodes", 1), ("video_episodes", 1), ("seed", 0)):
        if getattr(options, name) < least:
            raise ConfigError(f"{name}={getattr(options, name)} must be at least {least}")
    if options.json is not None:
        check_place("json", options.json)
    from frugalrl.files import write_json
    from frugalrl.training.console import spread
    from frugalrl.training.environments import make_factory
    from frugalrl.training.evaluation import LONGEST, load_policy, run_episodes
    from frugalrl.training.run_directory import RunDirectory

    config, _ = RunDirectory(options.run).read_config()
    policy = load_policy(options.run)
    factory = make_factory(config)
    if options.video is not None:
        check_video(options.video)
    seeds = range(options.seed, options.seed + options.episodes)

    def act(observation: Any) -> Any:
        return policy.predict(observation, deterministic=not options.stochastic)[0]

    play = partial(run_episodes, act, longest=None if factory.time_limit else LONGEST)
    policy.seed(options.seed)
    with closing(factory.make()) as environment:
        episodes = play(environment, seeds)
    assert episodes is not None
    print(
        f"{config.env_name}: reward {episodes.mean:,.2f} "
        f"({spread(episodes.rewards)}; least {episodes.rewards.min():,.2f}, "
        f"most {episodes.rewards.max():,.2f})"
    )
    rate = episodes.success_rate
    print(
        f"length {episodes.lengths.mean():,.1f}, control cost {episodes.control_costs.mean():,.2f}"
        + ("" if rate is None else f", success rate {rate:.0%}")
    )
    if episodes.cut:
        print(f"{episodes.cut} episodes were cut off after {LONGEST:,} steps: no time limit")
    if options.json is not None:
        write_json(options.json, {"env": config.env_name, **episodes.to_dict()})
    if options.video is not None:
        import imageio

        policy.seed(options.seed)  # what is filmed is what was measured
        with closing(factory.make(render_mode="rgb_array")) as film:
            rate = film.metadata.get("render_fps", 30)
            # A GIF's clock ticks in hundredths of a second; players ignore less than two of them.
            is_gif = options.video.suffix == ".gif"
            timing = {"duration": max(20, 1000 / rate)} if is_gif else {"fps": rate}
            movie: Any = imageio.get_writer(options.video, **timing)
            with movie:
                filmed = seeds[: options.video_episodes]
                play(film, filmed, frame=lambda: movie.append_data(film.render()))
        print(f"video: {options.video}")
    return 0


def check_place(name: str, path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.is_dir():
        raise ConfigError(f"{name}={str(path)!r} is a directory; name a file, such as one in it")
    if not os.access(path.parent, os.W_OK):
        what = "cannot be written" if path.parent.is_dir() else "does not exist"
        raise ConfigError(f"{name}={str(path)!r}: the directory {path.parent} {what}")


def check_video(path: Path) -> None:
    """Refuse a video that could not be written in the end."""
    if path.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"video={str(path)!r} must end in .mp4 or .gif")
    check_place("video", path)
    for module in ("imageio", "imageio_ffmpeg") if path.suffix == ".mp4" else ("imageio",):
        if find_spec(module) is None:
            raise ConfigError(f'video={str(path)!r} needs {module}: pip install "frugalrl[video]"')
