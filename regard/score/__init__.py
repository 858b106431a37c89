"""Scores of models on sets of questions."""
