"""Passes over blocks by the workers of a Ray cluster; `engine.RayEngine` is the way in."""
