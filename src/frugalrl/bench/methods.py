"""The methods compared: what each changes in a run, how it is called and drawn.

A method's name may carry parameters after an `@`: of the filter (`fac@epsilon=0.1,mu=70`), of the
buffer (`fac@share=0.05,eviction=random`, `small@share=0.2,dtype=float16`), or the method that a
control is made to match (`small@of=fac-paper`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Literal

from frugalrl.bench.errors import BenchError
from frugalrl.checks import check_choice

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

parse_toml = tomllib.loads

MATCHED_DROP = "matched-drop"
MATCHED_REPLACE = "matched-replace"
RELEASED = "released"
GRID_ONLY = (MATCHED_DROP, MATCHED_REPLACE, RELEASED)
"""Admissions that only a grid can make: see `frugalrl.bench.worker.grid_admission`."""

PLAIN_COLOR = "#6b7280"
CONTROLS = ("random-slot", "small")
"""What every rule is compared with at equal size."""


@dataclass(frozen=True)
class Method:
    """One way to train, as changes to a run's settings."""

    name: str
    label: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    color: str = PLAIN_COLOR
    dash: str = "solid"
    needs: Literal["size", "sizes"] | None = None
    """What a control takes from another run of the same task and seed: the size of its final
    buffer, or its size at every recorded step."""
    source: str = "fac"
    """The method of that run."""

    @property
    def frugal(self) -> bool:
        """Whether this method filters what enters the buffer with FAC, in whichever version."""
        return self.settings.get("admission") in ("fac", RELEASED)


def data_text(name: str) -> str:
    """Read a file of `frugalrl/bench/data`."""
    source = resources.files("frugalrl.bench").joinpath(f"data/{name}")
    return source.read_text(encoding="utf-8")


METHODS = {
    name: Method(name, **table) for name, table in parse_toml(data_text("methods.toml")).items()
}


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of the filter, by the paper's symbol."""

    setting: str
    """The name in a run's configuration."""
    about: str

    @property
    def default(self) -> Any:
        """The filter's own."""
        from frugalrl import FrugalFilter

        return getattr(FrugalFilter().settings, self.setting.removeprefix("fac_"))


PARAMETERS = {
    "epsilon": Parameter("fac_density_threshold", "density below which a reward is new"),
    "eta": Parameter("fac_decay", "how slowly epsilon falls in a full cell"),
    "beta": Parameter("fac_half_width", "half width of the interval around a reward"),
    "mu": Parameter("fac_bins", "bins of each important dimension"),
    "nu": Parameter("fac_dimension_threshold", "what counts as an important dimension"),
    "kernel": Parameter("fac_kernel", "kernel of the reward density"),
    "bandwidth": Parameter("fac_bandwidth", "bandwidth of the kernel"),
    "on_equivalent": Parameter("fac_on_equivalent", "what an equivalent transition does"),
    "warmup": Parameter("fac_warmup", "what happens to the warm-up's transitions"),
}
_OF_THE_BUFFER = {"eviction": "eviction", "dtype": "buffer_dtype"}
"""Parameters of any buffer, and the settings that they change."""


def find_method(name: str, extra: Mapping[str, Method] | None = None) -> Method:
    """Find a method, known or of a suite's own, with parameters after an `@` if there are any.

    Raises:
        BenchError: For an unknown method or parameter; the nearest is named.
    """
    known = {**METHODS, **(extra or {})}
    base, changes = split_variant(name)
    check_choice("method", base, known, BenchError)
    if "@" not in name:
        return known[base]
    if not changes:
        raise BenchError(f"method {name!r} has no parameter after the @: fac@epsilon=0.1")
    return _with_parameters(known[base], name, changes, known)


def variant_name(base: str, parameter: str, value: Any) -> str:
    """Name a method with one parameter changed; the default value gives the method itself."""
    check_choice("parameter", parameter, PARAMETERS, BenchError)
    read = _parse(parameter, str(value))
    if read == PARAMETERS[parameter].default:
        return base
    return f"{base}@{parameter}={f'{read:g}' if isinstance(read, float) else read}"


def split_variant(name: str) -> tuple[str, dict[str, str]]:
    """Split `fac@epsilon=0.1` into its method and its changed parameters."""
    base, _, changes = name.partition("@")
    # `of` names another method, whose own parameters follow it: it takes the rest.
    before, of, source = f",{changes}".partition(",of=")
    pairs = (item.partition("=") for item in before.split(",") if item)
    return base, {key: value for key, _, value in pairs} | ({"of": source} if of else {})


def rule_and_share(name: str) -> tuple[str, float | None]:
    """Split a name into the rule and its budget: `small@share=0.05` is small with 0.05."""
    base, changes = split_variant(name)
    share = changes.pop("share", None)
    changes.pop("of", None)
    rest = ",".join(f"{key}={value}" for key, value in changes.items())
    return f"{base}@{rest}" if rest else base, None if share is None else float(share)


def _with_parameters(
    method: Method, name: str, changes: Mapping[str, str], known: Mapping[str, Method]
) -> Method:
    settings = dict(method.settings)
    made = replace(method, name=name, settings=settings)
    words = []
    for key, text in changes.items():
        if not text:
            raise BenchError(f"{key!r} is no parameter=value, in method {name}")
        check_choice("parameter", key, [*PARAMETERS, "share", *_OF_THE_BUFFER, "of"], BenchError)
        if key in PARAMETERS:
            if method.settings.get("admission") != "fac":
                raise BenchError(f"method {name!r}: {method.name} has no filter to change {key} of")
            settings[PARAMETERS[key].setting] = _parse(key, text)
            made = replace(made, color=PLAIN_COLOR)
            words.append(f"{key} {text}")
        elif key == "share":
            share = settings["buffer_share"] = _parse_share(text)
            admission = settings.get("admission")
            if admission == MATCHED_DROP:
                raise BenchError(f"method {name!r}: random-drop has no size of its own to set")
            if admission == MATCHED_REPLACE:
                # A full buffer of fixed size that evicts at random is the same.
                del settings["admission"]
                settings["eviction"] = "random"
            if made.needs is not None:  # a fixed size needs no run to follow
                gone = "a random transition" if "eviction" in settings else "the oldest"
                made = replace(made, needs=None, about=f"control: a buffer that overwrites {gone}")
            own = "dash" if made.frugal else made.dash  # apart from the rule without a size
            made = replace(made, dash="dashdot" if share < 0.03 else "dot" if share < 0.1 else own)
            words.append(f"{100 * share:g} % of the steps")
        elif key in _OF_THE_BUFFER:
            settings[_OF_THE_BUFFER[key]] = text
            made = replace(made, dash="dash" if key == "dtype" else "dashdot")
            words.append(text if key == "dtype" else f"{text} {key}")
        elif key == "of":
            source = find_method(text, known)
            if made.needs is None or not source.frugal:
                raise BenchError(
                    f"method {name!r}: only a control is made to match a frugal method"
                )
            made = replace(made, source=source.name)
            words.append(f"as {source.label}")
    shown = ", ".join(words)
    return replace(made, label=f"{method.label}, {shown}", about=f"{made.about}; {shown}")


def _parse_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise BenchError(f"share={text!r} is no share of a run's steps; use 0 < share <= 1")
    return share


def _parse(parameter: str, text: str) -> Any:
    """Read a value of the type of the parameter's default."""
    kind = type(PARAMETERS[parameter].default)
    if kind is str:
        return text
    try:
        number = float(text)
    except ValueError:
        raise BenchError(f"{parameter}={text!r} is no number") from None
    if kind is int and not number.is_integer():
        raise BenchError(f"{parameter}={text!r} is no whole number")
    return kind(number)
