"""The register's bulk files: read into a corpus, or simulated in the same format."""
