"""Files → tensors: sound now, text and pictures later."""
