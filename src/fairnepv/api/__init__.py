"""The front door, by verb."""
