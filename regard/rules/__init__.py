"""Formal languages: automata, grammars, the tasks of the Chomsky hierarchy."""
