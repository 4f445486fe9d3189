"""Text and values that both front ends show: plans, runs, data, options, comparisons."""
