"""The tiny trained model that ships with the harness, and the recipe that made it."""
