"""From modality to answer: a Front, one or two Stacks, a Head."""
