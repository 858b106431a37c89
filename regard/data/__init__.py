"""Files → tensors: sound, text, sentence pairs and tables now, pictures later."""
