"""What came before attention: models of translation and of language that count words."""
