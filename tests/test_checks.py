"""Arguments are refused by name, with what would work."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from frugalrl.checks import (
    check_choice,
    integer_from,
    is_positive,
    nearest,
    number_from,
    refuse_class,
)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_become_plain(value: object) -> None:
    assert type(integer_from("n", value, 1)) is int


@pytest.mark.parametrize("value", [True, 1.0, "1", None, np.float32(1)])
def test_what_is_no_integer_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=r"n=.* is no integer; use one from 1"):
        integer_from("n", value, 1)


def test_integers_that_are_too_small_are_named() -> None:
    with pytest.raises(ValueError, match="n=0 is out of range; use an integer from 1"):
        integer_from("n", 0, 1)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int16(2)])
def test_numbers_become_plain(value: object) -> None:
    assert type(number_from("x", value)) is float


@pytest.mark.parametrize("value", [True, "1", None, 1j, [1.0]])
def test_what_is_no_number_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="is no number; use a finite number"):
        number_from("x", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0, 10**400])
def test_numbers_that_are_not_accepted_are_named(value: object) -> None:
    with pytest.raises(ValueError, match="is out of range; use a number above 0"):
        number_from("x", value, "a number above 0", is_positive)


def test_a_choice_names_the_nearest() -> None:
    check_choice("kind", "ring", ("ring", "heap"))
    with pytest.raises(ValueError, match=r"kind='rin' is unknown; did you mean 'ring'\? \(known: "):
        check_choice("kind", "rin", ("ring", "heap"))
    with pytest.raises(KeyError, match=r"kind=None is unknown \(known: ring, heap\)"):
        check_choice("kind", None, ("ring", "heap"), KeyError)


def test_the_nearest_name_is_found_in_any_case() -> None:
    assert nearest("hopper-v5", ["Ant-v5", "Hopper-v5"]) == "Hopper-v5"
    assert nearest("xyz", ["Ant-v5", "Hopper-v5"]) is None


def test_a_class_is_no_object() -> None:
    refuse_class("sampler", 3)
    with pytest.raises(TypeError, match=r"sampler=int is a class; use an object, int\(\)"):
        refuse_class("sampler", int)


def test_the_module_needs_the_standard_library_only() -> None:
    code = "import sys, frugalrl.checks; sys.exit(bool({'numpy', 'numba'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
