"""Frequency responses for :func:`krylow.filter`: single filters, and banks of them, most of which are tight frames."""

from krylow._response import Response
from krylow.responses.banks import Bank, FilterBank, HalfCosine, Hann, Itersine, MexicanHat, Meyer
from krylow.responses.single import (
    BandPass,
    Exponential,
    Gaussian,
    Heat,
    HighPass,
    LowPass,
    Rational,
    Tikhonov,
)

__all__ = [
    "BandPass",
    "Bank",
    "Exponential",
    "FilterBank",
    "Gaussian",
    "HalfCosine",
    "Hann",
    "Heat",
    "HighPass",
    "Itersine",
    "LowPass",
    "MexicanHat",
    "Meyer",
    "Rational",
    "Response",
    "Tikhonov",
]
