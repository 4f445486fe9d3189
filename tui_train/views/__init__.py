"""What both front ends show, as text and values: plans, runs, data, choices, comparisons."""
