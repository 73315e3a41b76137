"""The generator that filters draw with, as whole numbers of Python."""

from __future__ import annotations

BITS = 2**64


def mix(h: int) -> int:
    """Scatter the bits of a number (MurmurHash3's last step)."""
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD % BITS
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 % BITS
    return h ^ h >> 33


def splitmix(state: int, number: int) -> tuple[int, int]:
    """Give the next state, and one of so many numbers."""
    state = (state + 0x9E3779B97F4A7C15) % BITS
    return state, mix(state) % number
