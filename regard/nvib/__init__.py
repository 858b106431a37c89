"""NVIB: attention as nonparametric Bayes, with bottlenecks that count what passes."""
