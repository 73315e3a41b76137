"""Methods, by name and with parameters."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

import frugalrl
from frugalrl.bench import methods
from frugalrl.bench.errors import BenchError
from frugalrl.bench.runs import command, expand
from frugalrl.bench.suites import parse_suite
from frugalrl.bench.worker import important_dimensions_of, train_config


def test_the_methods_of_the_paper_and_the_controls() -> None:
    expected = {
        "baseline",
        "fac",
        "fac-paper",
        "fac-released",
        "laber",
        "per",
        "fac+laber",
        "fac+per",
    }
    controls = {"small", "random-slot", "random-drop"}
    assert set(methods.METHODS) == expected | controls
    taken = {name: (method.needs, method.source) for name, method in methods.METHODS.items()}
    assert taken["small"] == ("size", "fac")
    assert taken["random-slot"] == ("sizes", "fac")
    assert taken["random-drop"] == ("sizes", "fac-paper")
    assert methods.METHODS["fac+per"].settings == {"admission": "fac", "sampler": "prioritized"}


def test_every_setting_of_a_method_or_parameter_exists() -> None:
    from dataclasses import fields

    from frugalrl.training.config import TrainConfig

    known = {field.name for field in fields(TrainConfig)}
    assert {name for method in methods.METHODS.values() for name in method.settings} <= known
    assert {parameter.setting for parameter in methods.PARAMETERS.values()} <= known


def test_the_defaults_of_parameters_are_the_filters() -> None:
    defaults = {name: parameter.default for name, parameter in methods.PARAMETERS.items()}
    assert (defaults["epsilon"], defaults["eta"], defaults["kernel"]) == (0.2, 1e5, "epanechnikov")
    settings = asdict(frugalrl.FrugalFilter().settings)
    for parameter in methods.PARAMETERS.values():
        assert settings[parameter.setting.removeprefix("fac_")] == parameter.default


def test_parameters_change_a_method() -> None:
    method = methods.find_method("fac@epsilon=0.1,mu=70")
    assert method.settings == {"admission": "fac", "fac_density_threshold": 0.1, "fac_bins": 70}
    assert method.label == "FAC, epsilon 0.1, mu 70"
    kernel = methods.find_method("fac+per@kernel=tophat")
    assert kernel.settings["fac_kernel"] == "tophat"
    assert methods.split_variant("fac@epsilon=0.1,mu=70") == ("fac", {"epsilon": "0.1", "mu": "70"})


def test_the_default_value_is_the_method_itself() -> None:
    assert methods.variant_name("fac", "eta", 100_000) == "fac"
    assert methods.variant_name("fac", "eta", 10_000) == "fac@eta=10000"
    assert methods.variant_name("fac", "kernel", "epanechnikov") == "fac"
    assert methods.variant_name("fac", "epsilon", 0.5) == "fac@epsilon=0.5"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("facc", "did you mean 'fac'"),
        ("fac@epsilom=1", "did you mean 'epsilon'"),
        ("fac@epsilon", "is no parameter=value"),
        ("fac@", "no parameter after the @"),
        ("fac@mu=many", "is no number"),
        ("fac@mu=50.7", "is no whole number"),
        ("baseline@mu=3", "baseline has no filter"),
        ("fac@of=fac-paper", "only a control is made to match"),
        ("small@of=per", "only a control is made to match"),
        ("small@of=facc", "did you mean 'fac'"),
        ("random-drop@share=0.1", "random-drop has no size of its own"),
    ],
)
def test_mistakes_are_named(name: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        methods.find_method(name)


def test_unknown_parameter_of_a_variant() -> None:
    with pytest.raises(BenchError, match="parameter='gamma' is unknown"):
        methods.variant_name("fac", "gamma", 1)


def test_a_share_gives_the_buffer_its_size() -> None:
    suite = parse_suite(SHARED, "shared.toml")
    sizes = {run.method: run.settings["buffer_size"] for run in expand(suite)}
    assert sizes == {"small@share=0.05": 150, "random-slot@share=0.2": 600}
    assert all(run.needs is None for run in expand(suite))
    random_slot = methods.find_method("random-slot@share=0.2")
    assert random_slot.settings == {"buffer_share": 0.2, "eviction": "random"}
    assert (
        random_slot.about
        == "control: a buffer that overwrites a random transition; 20 % of the steps"
    )
    half = methods.find_method("small@share=0.2,dtype=float16")
    assert half.settings == {"buffer_share": 0.2, "buffer_dtype": "float16"}
    assert half.label == "Small ring, 20 % of the steps, float16"
    assert methods.rule_and_share(half.name) == ("small@dtype=float16", 0.2)
    assert half.dash != methods.find_method("small@share=0.2").dash  # drawn in the same colour
    frugal = methods.find_method("fac@share=0.2,eviction=random")
    assert frugal.settings == {"admission": "fac", "buffer_share": 0.2, "eviction": "random"}
    assert frugal.label == "FAC, 20 % of the steps, random eviction"
    with pytest.raises(BenchError, match="share='2' is no share"):
        methods.find_method("small@share=2")


SHARED = """
methods = ["small@share=0.05", "random-slot@share=0.2"]
seeds = 1
[[tasks]]
env = "Pendulum-v1"
steps = 3000
"""


def test_the_released_code_is_a_method_of_its_own() -> None:
    from frugalrl.admission.released import ReleasedFilter

    text = SHARED.replace('"small@share=0.05"', '"fac-released", "small@of=fac-released"')
    runs = {run.method: run for run in expand(parse_suite(text, "released.toml"))}
    assert runs["small@of=fac-released"].source == "fac-released"
    run = runs["fac-released"]
    dimensions = important_dimensions_of(replace(run, warmup_steps=500))
    assert dimensions == [2]  # Pendulum's angular velocity, as in the paper one dimension
    made = train_config(run, {"dimensions": dimensions}, None).admission
    assert isinstance(made, ReleasedFilter)
    assert list(made.important_dimensions) == [2]
    assert "only the grid's own command makes" in command(run, {}, "x")
