"""The cards: as NVML and the PCI bus describe them, who computes on them, and what they draw."""
