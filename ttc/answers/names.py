"""Names: the allow-list of what a word in an expression can stand for."""

from __future__ import annotations

from ttc.answers.algebra import INFINITY, PI, Symbol, Tree

__all__ = ["FUNCTIONS", "GREEK", "NAMES", "TRIGONOMETRIC", "UNITS"]

# fmt: off
TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
FUNCTIONS: dict[str, str] = {
    **{name: name for name in TRIGONOMETRIC},
    **{prefix + name: "a" + name for name in TRIGONOMETRIC for prefix in ("arc", "a")},
    **{name: name for name in ("sinh", "cosh", "tanh", "exp", "abs", "floor", "ceil")},
    "sqrt": "sqrt", "factorial": "factorial", "binomial": "binomial",
    "log": "log", "ln": "log", "lg": "log10", "log10": "log10",
}
"""Names of functions in an answer, and what they are called in a tree."""
GREEK = frozenset({
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta",
    "iota", "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi",
    "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Sigma", "Phi", "Psi",
    "Omega",
})
NAMES: dict[str, Tree] = {
    **{name: Symbol(name) for name in GREEK},
    "pi": PI, "infty": INFINITY, "infinity": INFINITY, "inf": INFINITY, "oo": INFINITY,
}
"""Words that stand for one symbol."""
UNITS = frozenset({
    "cm", "mm", "km", "kg", "mg", "lb", "lbs", "ml", "ft", "mi", "mph", "kph", "hr", "hrs", "min",
    "mins", "secs", "gal", "oz", "deg", "rad", "pm", "am", "yd", "yds", "mol", "Hz", "dB",
})
"""Short words that are units, where up to three letters might be a product."""
