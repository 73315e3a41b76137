"""Which filter a configuration asks for, and how a given one is written down."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from frugalrl.training.config import TrainConfig
from frugalrl.training.errors import ConfigError
from frugalrl.training.resolve import filter_arguments

if TYPE_CHECKING:
    from frugalrl.admission.protocol import AdmissionFilter


def make_admission(config: TrainConfig, seed: int) -> AdmissionFilter:
    """Make the filter, or take the one that was given.

    Raises:
        ConfigError: one of its arguments cannot work.
    """
    from frugalrl.admission.controls import AdmitAll, RandomAdmit

    if not isinstance(config.admission, str):
        return config.admission
    if config.admission == "none":
        return AdmitAll()
    if config.admission == "random":
        return RandomAdmit(rate=config.random_rate, seed=seed)
    if config.admission == "diverse":
        from frugalrl.admission.diverse import DiverseFilter

        return DiverseFilter(seed=seed)
    from frugalrl.admission.frugal import FrugalFilter

    make = FrugalFilter.paper if config.fac_paper else FrugalFilter
    try:
        return make(**filter_arguments(config))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"a --fac setting cannot work: {error}") from None


def describe_admission(config: TrainConfig, given: AdmissionFilter) -> TrainConfig:
    """Write a filter of this library down in settings; any other stays an object."""
    from frugalrl.admission.controls import AdmitAll, RandomAdmit

    if type(given) is AdmitAll:
        return dataclasses.replace(config, admission="none")
    if type(given) is RandomAdmit:
        return dataclasses.replace(config, admission="random", random_rate=given.rate)
    from frugalrl.admission.frugal import FrugalFilter

    if type(given) is FrugalFilter:
        settings = {f"fac_{name}": value for name, value in given.settings.to_json().items()}
        return dataclasses.replace(config, admission="fac", **settings)
    return config
