"""A small neural network in numpy, one copy per run side by side: two hidden layers of rectifiers, Adam."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from service.domain import Floats

MOMENTS = 0.9, 0.999  # decay of Adam's averages
TINY = 1e-8


class Network:
    """Maps (runs, samples, inputs) to (runs, samples, outputs); every run has its own weights."""

    def __init__(self, runs: int, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(0.0, np.sqrt(2.0 / before), (runs, before, after)) for before, after in pairwise(sizes)
        ]
        self.biases = [np.zeros((runs, 1, after)) for after in sizes[1:]]

    @property
    def parameters(self) -> list[Floats]:
        return self.weights + self.biases

    def forward(self, inputs: Floats) -> list[Floats]:
        """What enters each layer, and last the outputs."""
        layers = [inputs]
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            reached = layers[-1] @ weight + bias
            layers.append(np.maximum(reached, 0.0) if index + 1 < len(self.weights) else reached)
        return layers

    def backward(self, layers: list[Floats], slope: Floats) -> list[Floats]:
        """Gradient by the parameters of Σ slope × outputs, in the order of `parameters`."""
        weights, biases = [], []
        for index in reversed(range(len(self.weights))):
            weights.append(layers[index].swapaxes(1, 2) @ slope)
            biases.append(np.sum(slope, axis=1, keepdims=True))
            if index:
                slope = (slope @ self.weights[index].swapaxes(1, 2)) * (layers[index] > 0)
        return weights[::-1] + biases[::-1]


class Adam:
    """Steps along the averaged gradient, scaled by its averaged square."""

    def __init__(self, parameters: list[Floats], rate: float) -> None:
        self._parameters, self._rate, self._steps = parameters, rate, 0
        self._mean = [np.zeros_like(each) for each in parameters]
        self._square = [np.zeros_like(each) for each in parameters]

    def descend(self, gradient: list[Floats]) -> None:
        self._steps += 1
        first, second = MOMENTS
        scale = self._rate * np.sqrt(1.0 - second**self._steps) / (1.0 - first**self._steps)
        for value, slope, mean, square in zip(
            self._parameters, gradient, self._mean, self._square, strict=True
        ):
            mean += (1.0 - first) * (slope - mean)
            square += (1.0 - second) * (slope * slope - square)
            value -= scale * mean / (np.sqrt(square) + TINY)
