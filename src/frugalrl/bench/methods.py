"""The methods compared: what each changes in a run, how it is called and drawn.

A method's name may carry changed parameters of the filter, `fac@epsilon=0.1,mu=70`: the ablations
are made of such names, and they can be mixed with any others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from frugalrl.bench.errors import BenchError, unknown

Needs = Literal["rate", "size"]


@dataclass(frozen=True)
class Method:
    """One way to train, as changes to a run's settings."""

    name: str
    label: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    color: str = "#6b7280"
    dash: str = "solid"
    needs: Needs | None = None
    """What this method takes from FAC's run of the same task and seed: the share of transitions
    it stored, or the size of its final buffer."""

    @property
    def frugal(self) -> bool:
        """Whether this method filters what enters the buffer with FAC."""
        return self.settings.get("admission") == "fac"


_FAC = {"admission": "fac"}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("baseline", "Baseline", "every transition stored, uniform batches", {}, "#ea7f0b"),
        Method("fac", "FAC", "an equivalent transition replaces the oldest", _FAC, "#2166d1"),
        Method(
            "fac-discard",
            "FAC, discard",
            "an equivalent transition is dropped, as in the paper's text",
            {**_FAC, "fac_on_equivalent": "discard"},
            "#5aa5f0",
            "dash",
        ),
        Method(
            "laber",
            "LaBER",
            "batches drawn from a larger batch by TD error",
            {"sampler": "large_batch"},
            "#d3262f",
        ),
        Method(
            "per",
            "PER",
            "prioritised experience replay",
            {"sampler": "prioritized"},
            "#a8458f",
            "dash",
        ),
        Method(
            "fac+laber",
            "FAC + LaBER",
            "the frugal buffer with LaBER's batches",
            {**_FAC, "sampler": "large_batch"},
            "#0f9b8e",
        ),
        Method(
            "fac+per",
            "FAC + PER",
            "the frugal buffer with PER's batches",
            {**_FAC, "sampler": "prioritized"},
            "#3f9142",
            "dash",
        ),
        Method(
            "random",
            "Random drop",
            "control: keeps transitions at random, as many as FAC",
            {"admission": "random"},
            "#7a7f87",
            "dash",
            needs="rate",
        ),
        Method(
            "small",
            "Small ring",
            "control: a plain ring with the capacity of FAC's final buffer",
            {},
            "#7b5bd6",
            "dashdot",
            needs="size",
        ),
        Method(
            "random-slot",
            "Random slot",
            "control: as many places as FAC's final buffer; when full, a random one is overwritten",
            {"eviction": "random"},
            "#c2410c",
            "dashdot",
            needs="size",
        ),
    )
}


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of the filter, by the paper's symbol."""

    name: str
    setting: str
    default: Any
    about: str


SHARE = "share"
"""Parameter of any method: the buffer's places as a share of the steps, `small@share=0.05`."""

PARAMETERS: dict[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        Parameter("epsilon", "fac_density_threshold", 0.2, "density below which a reward is new"),
        Parameter("eta", "fac_decay", 1e5, "how slowly epsilon falls in a full cell"),
        Parameter("beta", "fac_half_width", 0.2, "half width of the interval around a reward"),
        Parameter("mu", "fac_bins", 50, "bins of each important dimension"),
        Parameter("nu", "fac_dimension_threshold", 0.5, "what counts as an important dimension"),
        Parameter("kernel", "fac_kernel", "epanechnikov", "kernel of the reward density"),
        Parameter("bandwidth", "fac_bandwidth", 0.3, "bandwidth of the kernel"),
        Parameter(
            "on_equivalent", "fac_on_equivalent", "replace", "what an equivalent transition does"
        ),
    )
}


def find_method(name: str, extra: Mapping[str, Method] | None = None) -> Method:
    """Find a method by name, with parameters after an `@` if there are any.

    Args:
        name: For example `baseline`, `fac+per` or `fac@epsilon=0.1`.
        extra: Further methods, defined by a suite.

    Raises:
        BenchError: For an unknown method or parameter; the nearest is named.
    """
    known = {**METHODS, **(extra or {})}
    base, _, changes = name.partition("@")
    if base not in known:
        raise unknown("method", base, known)
    method = known[base]
    if not changes:
        if "@" in name:
            raise BenchError(f"method {name!r} has no parameter after the @: fac@epsilon=0.1")
        return method
    if not method.frugal and changes.partition("=")[0] != SHARE:
        raise BenchError(f"method {name!r}: {base} has no filter whose parameters could change")
    return _with_parameters(method, changes)


def variant_name(base: str, parameter: str, value: Any) -> str:
    """Name a method with one parameter changed; the default value gives the method itself."""
    if parameter not in PARAMETERS:
        raise unknown("parameter", parameter, PARAMETERS)
    read = _parse(parameter, str(value))
    if read == PARAMETERS[parameter].default:
        return base
    return f"{base}@{parameter}={f'{read:g}' if isinstance(read, float) else read}"


def split_variant(name: str) -> tuple[str, dict[str, str]]:
    """Split `fac@epsilon=0.1` into its method and its changed parameters."""
    base, _, changes = name.partition("@")
    pairs = (item.partition("=") for item in changes.split(",") if item)
    return base, {key: value for key, _, value in pairs}


def _with_parameters(method: Method, changes: str) -> Method:
    settings = dict(method.settings)
    shown: list[str] = []
    needs = method.needs
    for item in changes.split(","):
        key, equals, text = item.partition("=")
        if not equals or not text:
            raise BenchError(f"{item!r} is no parameter=value, in method {method.name}@{changes}")
        if key == SHARE:
            settings["buffer_share"] = _parse_share(text)
            needs = None
            continue
        if key not in PARAMETERS:
            raise unknown("parameter", key, [*PARAMETERS, SHARE])
        settings[PARAMETERS[key].setting] = _parse(key, text)
        shown.append(f"{key} {text}")
    if "buffer_share" in settings:
        shown.append(f"{100 * settings['buffer_share']:g} % of the steps")
    return replace(
        method,
        name=f"{method.name}@{changes}",
        label=f"{method.label}, {', '.join(shown)}",
        about=f"{method.about}; {', '.join(shown)}",
        settings=settings,
        color="#6b7280",
        dash="solid",
        needs=needs,
    )


def _parse_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise BenchError(f"{SHARE}={text!r} is no share of a run's steps; use 0 < share <= 1")
    return share


def _parse(parameter: str, text: str) -> Any:
    default = PARAMETERS[parameter].default
    if isinstance(default, str):
        return text
    try:
        number = float(text)
    except ValueError:
        raise BenchError(f"{parameter}={text!r} is no number") from None
    if not isinstance(default, int):
        return number
    if not number.is_integer():
        raise BenchError(f"{parameter}={text!r} is no whole number")
    return int(number)
