"""The engine's step in C: int8 weights and activations, one arithmetic at every number of rows."""

from ttc.engine.local.native.library import Kernels
from ttc.engine.local.native.model import NativeModel

__all__ = ["Kernels", "NativeModel"]
