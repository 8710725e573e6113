"""Tree search: pure policies that decide what to expand, and one driver that serves them all."""

from ttc.strategies.tree.nodes import Tree, TreeNode
from ttc.strategies.tree.policy import Comparison, Expansion, Policy, Result, SearchState

__all__ = ["Comparison", "Expansion", "Policy", "Result", "SearchState", "Tree", "TreeNode"]
