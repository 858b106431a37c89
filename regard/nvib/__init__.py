"""Attention read as nonparametric Bayes."""
