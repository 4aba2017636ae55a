"""The commands of the studies, which join `fairnepv` by entry point."""
