"""Agents: models that call tools, and votes on their calls."""

from ttc.strategies.agent.agent import Agent
from ttc.strategies.agent.lats import LanguageAgentTreeSearch
from ttc.strategies.agent.voting import Voter, elect, is_majority, key_of

__all__ = ["Agent", "LanguageAgentTreeSearch", "Voter", "elect", "is_majority", "key_of"]
