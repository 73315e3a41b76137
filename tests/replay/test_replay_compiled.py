"""Compiled code is made for whatever types come first, in any order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from frugalrl.admission.controls import RandomAdmit
from frugalrl.replay.buffer import ReplayBuffer

SPACE = spaces.Box(-1.0, 1.0, (2,), np.float32)

FRESH = """
import numpy as np
from gymnasium import spaces
from frugalrl import RandomAdmit, ReplayBuffer

space = spaces.Box(-1.0, 1.0, (2,), np.float32)
for admission, dtype in [(RandomAdmit(1.0), np.float64), (None, np.float64), (None, np.float32)]:
    buffer = ReplayBuffer(9, observation_space=space, action_space=space, admission=admission)
    rows = np.zeros((1, 2), dtype), np.zeros((1, 2), dtype), np.zeros(1), np.ones((1, 2), dtype)
    for _ in range(3):
        buffer.add(*rows, np.zeros(1, bool), np.zeros(1, bool))
    print(len(buffer))
"""


def test_nothing_compiled_yet(tmp_path: Path) -> None:
    """With an empty cache, functions that refuse unknown types still serve those that call them."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""  # the process that runs the tests would do the talking
    assert done.stdout.split() == ["3", "3", "3"]


@pytest.mark.parametrize("value", [[], {}, None, "text", object(), [[]], [[None, 1.0]]])
@pytest.mark.parametrize("place", range(6))
def test_what_is_no_array_is_an_error_at_any_time(place: int, value: object) -> None:
    buffer = ReplayBuffer(9, observation_space=SPACE, action_space=SPACE)
    rows = [
        np.zeros((1, 2)),
        np.zeros((1, 2)),
        np.zeros(1),
        np.zeros((1, 2)),
        *np.zeros((2, 1), bool),
    ]
    wrong = list(rows)
    wrong[place] = value
    for _ in range(3):
        buffer.add(*rows)
        with pytest.raises((TypeError, ValueError), match=r"has (shape|dtype)"):
            buffer.add(*wrong)
    assert len(buffer) == buffer.stats.offered == 3


def test_subclasses_of_arrays_are_taken() -> None:
    buffer = ReplayBuffer(99, observation_space=SPACE, action_space=SPACE)
    plain = np.zeros((1, 2))
    flags = np.zeros(1, bool)
    for given in (np.ma.array(plain), plain.view(np.recarray)):
        for _ in range(2):
            buffer.add(plain, plain, np.zeros(1), plain, flags, flags)
        buffer.add(given, plain, np.zeros(1), given, flags, flags)
    assert len(buffer) == 6


@pytest.mark.parametrize("admission", [None, RandomAdmit(1.0)])
def test_types_may_change_from_row_to_row(admission: RandomAdmit | None) -> None:
    buffer = ReplayBuffer(
        100, observation_space=SPACE, action_space=SPACE, admission=admission, environments=2
    )
    plain = np.arange(4.0).reshape(2, 2)
    frozen = plain.copy()
    frozen.flags.writeable = False
    kinds = [
        plain,
        plain,
        plain.astype(np.float32),
        plain.tolist(),
        plain.astype(np.float16),
        np.asfortranarray(plain),
        plain.astype(int),
        frozen,
        plain.astype(">f8"),
        plain[:1],
        plain[0],
        plain,
    ]
    expected = 0
    for given in kinds:
        for next_given in (given, plain[: len(np.atleast_2d(given))].reshape(np.shape(given))):
            count = len(np.atleast_2d(given))
            flags = np.zeros(count, bool) if np.ndim(given) == 2 else False
            rewards = np.arange(float(count)) if np.ndim(given) == 2 else 0.0
            outcome = buffer.add(given, given, rewards, next_given, flags, flags)
            expected += count
            assert outcome.stored == count
    held = buffer.transitions()
    assert len(buffer) == expected
    assert set(map(tuple, held.observations.tolist())) == {(0.0, 1.0), (2.0, 3.0)}
    assert np.array_equal(held.observations, held.actions)
    assert np.array_equal(held.observations, held.next_observations)
    assert np.array_equal(held.rewards, held.observations[:, 0] / 2)
