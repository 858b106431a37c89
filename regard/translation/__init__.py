"""Translation: texts of any length into another language, with reasons and alternatives."""
