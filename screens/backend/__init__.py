"""Backend: what trains, what starts it, and with which Python."""
