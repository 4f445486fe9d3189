"""The steps that both front ends share."""
