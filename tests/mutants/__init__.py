"""Mutation tests: would a test notice if this line were wrong? `make mutants`."""
