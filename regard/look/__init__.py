"""Looking inside: read and change any activation of the model that runs."""
