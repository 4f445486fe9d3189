"""Recipe: model, batch, optimisation, fallbacks."""
