"""What is known about an encoder: scores, probes, the score card, comparisons of two versions."""
