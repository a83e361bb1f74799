"""The streams of Guo and Zhou as histograms: tuples per substream and window (GZ-P2 to P8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenflow.model.slots import FloatArray, IntArray

SUBSTREAMS = 100
WINDOWS = 120
HISTORY = 24  # windows before the first that is measured: what CLB learns from
RATE = 10_000.0  # tuples per second of S1 and S2
WINDOW_S = 60.0
DAY_WINDOWS = 1440

_SIGMA = 15.0  # of S1; not given (GZ-P5)
_VOCABULARY = 100_000
_WAVE = 0.5  # how far a word's rate swings over a day


def gaussian_shares() -> FloatArray:
    """Return the share of each substream of S1."""
    keys = np.arange(1, SUBSTREAMS + 1)
    return _shares(np.exp(-(((keys - 50.5) / _SIGMA) ** 2) / 2))


def zipf_shares(exponent: float = 1.0) -> FloatArray:
    """Return the share of each substream of S2."""
    return _shares(np.arange(1.0, SUBSTREAMS + 1) ** -exponent)


def poisson_windows(shares: FloatArray, windows: int, per_window: float, random: np.random.Generator) -> IntArray:
    """Return a histogram per row: Poisson arrivals, each with a key of its own (GZ-P6)."""
    return random.poisson(per_window * shares, (windows, shares.size))


@dataclass(frozen=True, slots=True)
class Words:
    """The stand-in for the Twitter stream (GZ-P8, A35): words of a Zipf 1.0 vocabulary, hashed to the substreams.

    Each word's rate swings over a day, at a time of its own. `stop_words` of the most frequent are left out, as word
    counts do; with them, one substream alone exceeds an even share of 10 lanes.
    """

    stop_words: int = 0
    vocabulary: int = _VOCABULARY

    def rates(self, windows: int, random: np.random.Generator, day: float = DAY_WINDOWS) -> FloatArray:
        """Return the share of each substream in each window, one row per window; they add up to about 1.

        A wave of each word is a sine and a cosine, so two sums per substream hold all words of it.
        """
        ranks = np.arange(self.stop_words + 1, self.vocabulary + 1)
        weight = _shares(1.0 / ranks)
        substream = random.integers(0, SUBSTREAMS, weight.size)
        phase = random.uniform(0, 2 * np.pi, weight.size)
        level, sine, cosine = (
            np.bincount(substream, values, SUBSTREAMS)
            for values in (weight, weight * np.cos(phase), weight * np.sin(phase))
        )
        angle = 2 * np.pi * np.arange(windows)[:, None] / day
        rates: FloatArray = level + _WAVE * (np.sin(angle) * sine + np.cos(angle) * cosine)
        return rates

    def windows(self, windows: int, per_window: float, random: np.random.Generator) -> IntArray:
        """Return a histogram per row."""
        return random.poisson(per_window * self.rates(windows, random))


def phased_rates(windows: int, day: float, random: np.random.Generator, swing: float = 0.9) -> FloatArray:
    """Return the share of each substream in each window: each swings over a day, in one of four phases."""
    phase = random.integers(0, 4, SUBSTREAMS) * np.pi / 2
    angle = 2 * np.pi * np.arange(windows)[:, None] / day
    waves = random.permutation(zipf_shares(0.4)) * (1 + swing * np.sin(angle + phase))
    rates: FloatArray = waves / waves.sum(axis=1, keepdims=True)
    return rates


def _shares(weights: npt.NDArray[np.floating]) -> FloatArray:
    shares: FloatArray = weights / weights.sum()
    return shares
