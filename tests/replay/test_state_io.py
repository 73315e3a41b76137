"""State files come back as they were written, or are refused with the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from frugalrl.state_io import StateFileError, load_state, save_state

JSON = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
DTYPES = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
KEYS = st.text(min_size=1, max_size=6).filter(lambda key: key != "$array")
STATES = st.dictionaries(
    KEYS,
    st.recursive(
        JSON | ARRAYS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(STATES)
@settings(max_examples=60)
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    path = tmp_path_factory.mktemp("state") / "a.safetensors"
    save_state(path, state, "thing", 3)
    assert same(state, load_state(path, "thing", 3))


def test_any_memory_layout_comes_back(tmp_path: Path) -> None:
    matrix = np.arange(24.0).reshape(4, 6)
    state = {"turned": matrix.T, "thin": matrix[::2, 1::3], "big": matrix.astype(">f8")}
    save_state(tmp_path / "a", state, "thing", 1)
    loaded = load_state(tmp_path / "a", "thing", 1)
    for name, array in state.items():
        assert np.array_equal(loaded[name], array)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", np.array([1j]), np.array([object()]), {1: 2}, {"$array": 1}],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="inner"):
        save_state(tmp_path / "a", {"inner": value}, "thing", 1)
    assert list(tmp_path.iterdir()) == []


def test_two_arrays_cannot_have_one_name(tmp_path: Path) -> None:
    array = np.zeros(2)
    with pytest.raises(TypeError, match=r"inner/a/b.* in two ways"):
        save_state(tmp_path / "a", {"inner": {"a/b": array, "a": {"b": array}}}, "thing", 1)
    with pytest.raises(TypeError, match="inner"):
        save_state(tmp_path / "a", {"inner": np.longdouble(1)}, "thing", 1)
    save_state(tmp_path / "a", {"point": np.float64(3) * np.ones(())}, "thing", 1)
    assert load_state(tmp_path / "a", "thing", 1)["point"] == 3.0


def write(path: Path) -> bytes:
    state = {"numbers": np.arange(40, dtype=np.float32), "name": "a", "deep": {"flags": [True]}}
    save_state(path, state, "thing", 1)
    return path.read_bytes()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "a")
    cut = tmp_path / "cut"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(StateFileError, match="cut: "):
            load_state(cut, "thing", 1)


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "a")
    rng = np.random.default_rng(0)
    flipped = tmp_path / "flipped"
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        flipped.write_bytes(damaged)
        with pytest.raises(StateFileError, match="flipped: "):
            load_state(flipped, "thing", 1)


def test_appended_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(write(path) + b"more")
    with pytest.raises(StateFileError, match="damaged"):
        load_state(path, "thing", 1)


def test_wrong_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path)
    with pytest.raises(StateFileError, match="no such file"):
        load_state(tmp_path / "b", "thing", 1)
    with pytest.raises(StateFileError, match="no such file"):
        load_state(tmp_path, "thing", 1)
    with pytest.raises(StateFileError, match="holds a thing, not a checkpoint"):
        load_state(path, "checkpoint", 1)
    with pytest.raises(StateFileError, match=r"has version 1 of the thing layout.*reads version 2"):
        load_state(path, "thing", 2)
    save_file({"weights": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(StateFileError, match="not a Frugal state file"):
        load_state(tmp_path / "other", "thing", 1)
    (tmp_path / "text").write_text("hello, this is not a state file at all")
    with pytest.raises(StateFileError, match="damaged or truncated"):
        load_state(tmp_path / "text", "thing", 1)


def test_a_failed_save_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    before = write(path)

    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_state(path, {"numbers": np.zeros(9)}, "thing", 1)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        save_state(tmp_path / "nowhere" / "a", {}, "thing", 1)


def test_files_are_plain_safetensors(tmp_path: Path) -> None:
    write(tmp_path / "a")
    assert np.array_equal(load_file(tmp_path / "a")["/numbers"], np.arange(40, dtype=np.float32))


def test_the_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
