"""Tree search: pure policies that decide what to expand, and one driver that serves them all."""

from ttc.strategies.tree.a_star import AStar
from ttc.strategies.tree.ab_mcts import AdaptiveBranchingMCTS
from ttc.strategies.tree.actions import Action
from ttc.strategies.tree.beam_search import BeamSearch
from ttc.strategies.tree.best_first import BestFirst
from ttc.strategies.tree.bg_mcts import BudgetGuidedMCTS
from ttc.strategies.tree.driver import Driver, Search
from ttc.strategies.tree.dvts import DiverseVerifierTreeSearch
from ttc.strategies.tree.mcts import MonteCarloTreeSearch
from ttc.strategies.tree.nodes import Tree, TreeNode
from ttc.strategies.tree.particle_filtering import ParticleFiltering
from ttc.strategies.tree.policy import Comparison, Expansion, Policy, Result, SearchState
from ttc.strategies.tree.rebase import Rebase
from ttc.strategies.tree.search import TreeSearch
from ttc.strategies.tree.steps import Delimiter, FixedLength, HighEntropy, Sentence, StepRule
from ttc.strategies.tree.tree_of_thoughts import TreeOfThoughts

__all__ = [
    "AStar",
    "Action",
    "AdaptiveBranchingMCTS",
    "BeamSearch",
    "BestFirst",
    "BudgetGuidedMCTS",
    "Comparison",
    "Delimiter",
    "DiverseVerifierTreeSearch",
    "Driver",
    "Expansion",
    "FixedLength",
    "HighEntropy",
    "MonteCarloTreeSearch",
    "ParticleFiltering",
    "Policy",
    "Rebase",
    "Result",
    "Search",
    "SearchState",
    "Sentence",
    "StepRule",
    "Tree",
    "TreeNode",
    "TreeOfThoughts",
    "TreeSearch",
]
